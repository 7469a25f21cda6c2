"""Folders of images are read as columns, and broken files are bad rows."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image

from components.base.errors import InputError
from components.ingest import image_reader
from components.ingest.blocks import RowLog


def write(path: Path, format_: str = "PNG", size: tuple[int, int] = (8, 8)) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    Image.new("L", size, 128).save(file, format_)
    path.write_bytes(file.getvalue())
    return str(path)


def read(paths: list[str], configured: Any = None) -> dict[str, list[Any]]:
    reader = image_reader.ImageReader(image_reader.label_type(paths, configured), 50)
    row_log = RowLog(None)
    file_ranges = [file_range for path in paths for file_range in reader.ranges(path, None)]
    blocks = [block for file_range in file_ranges for block in reader.read(file_range, row_log)]
    assert row_log.close().bad == 0
    assert [block.origin(0) for block in blocks] == [(file_range, 1) for file_range in file_ranges]
    return pa.Table.from_batches([block.columns for block in blocks]).to_pydict()


def test_images_are_read_with_bytes_class_and_path(tmp_path: Path) -> None:
    paths = [write(tmp_path / "cat" / "1.png"), write(tmp_path / "dög" / "2.jpg", "JPEG")]
    assert read(paths) == {
        "image": [Path(path).read_bytes() for path in paths],
        "label": [b"cat", "dög".encode()],
        "path": [b"cat/1.png", "dög/2.jpg".encode()],
    }


def test_classes_that_are_all_integers_are_int64_unless_bytes_are_configured(tmp_path: Path) -> None:
    paths = [write(tmp_path / "0" / "1.png"), write(tmp_path / "12" / "1.png")]
    assert read(paths)["label"] == read(paths, "int")["label"] == [0, 12]
    assert read(paths, "bytes")["label"] == [b"0", b"12"]
    assert read([*paths, write(tmp_path / "x" / "1.png")])["label"] == [b"0", b"12", b"x"]


def test_classes_of_another_type_are_rejected(tmp_path: Path) -> None:
    paths = [write(tmp_path / "0" / "1.png"), write(tmp_path / "cat" / "1.png")]
    with pytest.raises(InputError, match=r"data\.types: the classes cannot be int: cat"):
        image_reader.label_type(paths, "int")
    with pytest.raises(InputError, match=r"data\.types: the classes cannot be float"):
        image_reader.label_type(paths[:1], "float")


def test_split_depends_on_the_image_and_not_on_its_name() -> None:
    assert image_reader.ImageReader.properties.key_columns == ("image",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"no image", "expected a PNG or JPEG image, received another file"),
        (lambda data: b"", "expected a PNG or JPEG image, received another file"),
        (lambda data: data[:-20], "expected a complete image, received one that is cut off after"),
    ],
)
@pytest.mark.parametrize("format_", ["PNG", "JPEG"])
def test_broken_files_are_bad_rows(
    tmp_path: Path, change: Callable[[bytes], bytes], message: str, format_: str
) -> None:
    good, bad = write(tmp_path / "0" / "1.png"), write(tmp_path / "0" / "2.png", format_, (64, 64))
    Path(bad).write_bytes(change(Path(bad).read_bytes()))
    reader, row_log = image_reader.ImageReader(pa.int64(), 50), RowLog(None)
    blocks = [block for path in (good, bad) for block in reader.read(reader.first_range(path, None), row_log)]
    counts = row_log.close()
    assert len(blocks) == 1
    assert (counts.rows, counts.bad) == (2, 1)
    (bad_row,) = counts.first_bad
    assert (bad_row.path, counts.position_in_file(bad_row), bad_row.column) == (bad, 1, None)
    assert bad_row.reason.startswith(message)


def test_data_after_the_end_of_an_image_is_accepted(tmp_path: Path) -> None:
    path = write(tmp_path / "0" / "1.jpg", "JPEG")
    with Path(path).open("ab") as file:
        file.write(b"a camera's own notes")
    assert len(read([path])["image"]) == 1
