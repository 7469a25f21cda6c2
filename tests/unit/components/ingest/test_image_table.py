"""Tables that name image files: bounded memory, fingerprints and sizes, tested without Beam."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from components.ingest import image_table, input_files, readers
from components.ingest.blocks import Block, RowLog
from components.ingest.component import example_gen
from components.ingest.config import DataConfig, ImagesConfig
from components.ingest.driver import Driver
from components.ingest.image_table import ImageTable, fingerprint, resolve
from components.ingest.input_size import estimate_local_size
from tests.support.data.sample_images import encode, picture
from tests.support.runs.ingest_runs import data


def photos(folder: Path, count: int) -> DataConfig:
    """Write images and two CSV files that name them; return the config."""
    lines = []
    for number in range(count):
        (folder / f"{number}.jpg").write_bytes(encode(picture(number)))
        lines.append(f"{number}.jpg,{number % 2}\n")
    for part in range(2):
        (folder / f"{part}.csv").write_text("file,label\n" + "".join(lines[part::2]))
    return data(folder / "*.csv", label="label", images={"path_column": "file"})


def read(config: DataConfig) -> tuple[ImageTable, list[Block], RowLog]:
    paths = [path for matched in input_files.files(config).values() for path in matched]
    reader = readers.reader(config.ingest("csv"), paths)
    assert isinstance(reader, ImageTable)
    log = RowLog(None)
    ranges = [file_range for path in paths for file_range in reader.ranges(path, None)]
    return reader, [block for file_range in ranges for block in reader.read(file_range, log)], log


def test_size_of_blocks_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = photos(tmp_path, 14)
    largest = max(path.stat().st_size for path in tmp_path.glob("*.jpg"))
    monkeypatch.setattr(image_table, "_BLOCK_BYTES", 2 * largest)
    (tmp_path / "3.jpg").write_bytes(b"no image")
    _, blocks, log = read(config)
    assert len(blocks) >= 5
    assert all(sum(map(len, block.columns["image"].to_pylist())) <= 3 * largest for block in blocks)
    names = [name for block in blocks for name in block.columns["file"].to_pylist()]
    assert sorted(names) == sorted(f"{number}.jpg".encode() for number in range(14) if number != 3)
    # The origin of every row is known. Line 2 is the first line below the header.
    for block in blocks:
        assert block.images is not None
        assert block.images["image.name"].to_pylist() == block.columns["file"].to_pylist()
        for row, name in enumerate(block.columns["file"].to_pylist()):
            origin, position = block.origin(row)
            number = int(name.decode().partition(".")[0])
            assert (Path(origin.path).name, position) == (f"{number % 2}.csv", number // 2 + 2)
    counts = log.close()
    assert (counts.rows, counts.bad, counts.first_bad[0].position) == (14, 1, 3)


def test_large_tables_are_divided_among_workers(tmp_path: Path) -> None:
    lines = [f"{'x' * 60}{number}.jpg,0\n" for number in range(4_000)]
    (tmp_path / "photos.csv").write_text("file,label\n" + "".join(lines))
    path = str(tmp_path / "photos.csv")
    config = data(path, label="label", images={"path_column": "file"}).ingest("csv")
    assert len(readers.reader(config, [path]).ranges(path, None)) > 3
    plain = data(path, label="label").ingest("csv")
    assert len(readers.reader(plain, [path]).ranges(path, None)) == 1


def test_names_of_missing_or_special_files_do_not_end_the_run(tmp_path: Path) -> None:
    config = photos(tmp_path, 2)
    os.mkfifo(tmp_path / "fifo.jpg")
    reader, _, _ = read(config)
    names = ["fifo.jpg", ".", "0.jpg/1.jpg", "x" * 300, "a\0b.jpg", "0.jpg"]
    *bad, good = reader._read_images(str(tmp_path / "0.csv"), names)
    assert bad[:2] == [
        f"{tmp_path}/fifo.jpg: expected a file, received a FIFO",
        f"{tmp_path}/.: expected a file, received a folder",
    ]
    assert bad[2:] == [f"expected an image file, there is none at {tmp_path}/{name}" for name in names[2:-1]]
    assert good[0] == (tmp_path / "0.jpg").read_bytes()


def test_names_that_are_not_utf_8_are_bad_rows(tmp_path: Path) -> None:
    config = photos(tmp_path, 2)
    (tmp_path / "0.csv").write_bytes(b"file,label\n\xff.jpg,0\n0.jpg,0\n")
    _, blocks, log = read(config)
    assert sum(block.columns.num_rows for block in blocks) == 2
    (bad,) = log.close().first_bad
    assert bad.reason == f"expected an image file, there is none at {tmp_path}/\ufffd.jpg"


@pytest.mark.parametrize(
    ("name", "folder", "expected"),
    [
        ("a/1.jpg", None, "tables/a/1.jpg"),
        ("a/1.jpg", "gs://bucket/images", "gs://bucket/images/a/1.jpg"),
        ("/data/1.jpg", "images", "/data/1.jpg"),
        ("gs://other/1.jpg", "images", "gs://other/1.jpg"),
    ],
)
def test_names_are_resolved_against_a_folder(name: str, folder: str | None, expected: str) -> None:
    assert resolve(name, "tables/photos.csv", ImagesConfig(path_column="file", folder=folder)) == expected


def resolve_fingerprint(config: DataConfig) -> str:
    """Return the fingerprint, which is part of ExampleGen's cache key."""
    node = example_gen(config, input_files.find(config), "parquet")
    return str(Driver(None).resolve_exec_properties(dict(node.exec_properties), None, None)["input_fingerprint"])


def test_fingerprint_covers_the_images_that_the_table_names(tmp_path: Path) -> None:
    config = photos(tmp_path, 6)
    first = resolve_fingerprint(config)
    assert "images:6," in first
    (tmp_path / "another.jpg").write_bytes(encode(picture(99)))
    assert resolve_fingerprint(config) == first
    # Simulate a changed image of the same size, which differs only in its modification time.
    os.utime(tmp_path / "4.jpg", ns=(1, 1))
    second = resolve_fingerprint(config)
    (tmp_path / "5.jpg").unlink()
    third = resolve_fingerprint(config)
    (tmp_path / "5.jpg").mkdir()
    assert len({first, second, third, resolve_fingerprint(config)}) == 4
    without_images = config.model_copy(update={"images": ImagesConfig()})
    assert "images:" not in resolve_fingerprint(without_images)


def test_estimated_size_includes_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = photos(tmp_path, 10)
    tables = sum(path.stat().st_size for path in tmp_path.glob("*.csv"))
    images = sum(path.stat().st_size for path in tmp_path.glob("*.jpg"))
    assert estimate_local_size(config) == tables + images
    monkeypatch.setattr(image_table, "_SAMPLE", 3)
    assert estimate_local_size(config) - tables == pytest.approx(images, rel=0.5, abs=1)
    remote = config.model_copy(update={"images": ImagesConfig(path_column="file", folder="gs://bucket/images")})
    assert estimate_local_size(remote) == tables
    for path in tmp_path.glob("*.jpg"):
        path.unlink()
    assert estimate_local_size(config) == tables


def test_remote_images_are_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = photos(tmp_path, 4)
    requested_paths: list[str] = []

    class Files:
        @staticmethod
        def open(*_: str) -> Any:
            raise NotFoundError

        @staticmethod
        def stat(path: str) -> Any:
            requested_paths.append(path)
            if path.endswith("2.jpg"):
                raise NotFoundError
            return type("Stat", (), {"length": 7, "mtime_nsec": 8})

    class NotFoundError(Exception):
        pass

    monkeypatch.setattr(image_table.file_io, "file_system", lambda path: Files)
    paths = [str(tmp_path / "0.csv"), str(tmp_path / "1.csv")]
    images = ImagesConfig(path_column="file", folder="gs://bucket")
    reader = readers.paths_reader(config.ingest("csv").model_copy(update={"images": images}), paths)
    reading = ImageTable(reader, images)._read_images(paths[0], ["2.jpg", None, f"{tmp_path}/0.jpg"])
    results = list(reading)
    assert results[:2] == [
        "expected an image file, there is none at gs://bucket/2.jpg",
        "expected the name of an image file, received none",
    ]
    assert results[2][0] == (tmp_path / "0.jpg").read_bytes()
    text = fingerprint(reader, paths, images)
    assert text.startswith("images:4,image_bytes:21,sha256:")
    assert sorted(requested_paths) == [f"gs://bucket/{number}.jpg" for number in range(4)]
