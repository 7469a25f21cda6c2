"""Tables that name image files, and records with encoded images, are ingested; bad images are quarantined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import parquet
from tfx.types import standard_artifacts

from components.data import image_facts
from components.data.examples import Format
from components.ingest.config import DataConfig
from tests.support.data.sample_images import MEGAPIXELS, encode, images_to_refuse, picture
from tests.support.runs import ingest_runs
from tests.support.runs.ingest_runs import all_rows, bad_rows, by_split, counts, data, example, ingest, ingest_error

pytestmark = pytest.mark.both_lines
SOUND = 12
ANY = {"max_fraction": 1}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the same images as CSV, Parquet and TFRecord tables: valid images, then rejected images."""
    folder = tmp_path_factory.mktemp("photos")
    files = {f"{number}.jpg": encode(picture(100 + number)) for number in range(SOUND)}
    files |= {f"{kind}.png": content for kind, (content, _) in images_to_refuse().items()}
    (folder / "files").mkdir()
    for name, content in files.items():
        (folder / "files" / name).write_bytes(content)
    names = [f"files/{name}" for name in files] + ["files/none.jpg"]
    prices: list[Any] = [number + 0.5 for number in range(len(names))]
    labels = [f"class {number % 2}" for number in range(len(names))]
    lines = [f"{name},{label},{price}" for name, label, price in zip(names, labels, prices, strict=True)]
    (folder / "photos.csv").write_text("file,label,price\n" + "".join(f"{line}\n" for line in [*lines, ",class 0,1"]))
    table = pa.table({"file": [*names, None], "label": [*labels, "class 0"], "price": [*prices, 1.0]})
    parquet.write_table(table, folder / "photos.parquet", row_group_size=5)
    encoded_table = pa.table({"photo": [*files.values(), None], "label": labels})
    parquet.write_table(encoded_table, folder / "encoded.parquet", row_group_size=5)
    with tf.io.TFRecordWriter(str(folder / "photos.tfrecord")) as writer:
        for content, label in zip(files.values(), labels, strict=False):
            writer.write(example(photo=content, label=label.encode()))
        writer.write(example(label=b"class 0"))
    return folder


def table(photos: Path, suffix: str, **images: Any) -> DataConfig:
    section = {"path_column": "file", "max_megapixels": MEGAPIXELS, **images}
    return data(photos / f"photos.{suffix}", label="label", images=section, bad_rows=ANY)


def reasons(photos: Path) -> dict[str, str]:
    """Return the beginning of the expected reason for every file whose row is bad."""
    prefixes = {f"files/{kind}.png": reason for kind, (_, reason) in images_to_refuse().items()}
    prefixes = {name: f"{photos / name}: {reason}" for name, reason in prefixes.items()}
    return {**prefixes, "files/none.jpg": f"expected an image file, there is none at {photos / 'files/none.jpg'}"}


@pytest.mark.parametrize(("suffix", "stored"), [("csv", "parquet"), ("parquet", "tfrecord")])
def test_images_are_added_to_the_rows_of_a_table(photos: Path, tmp_path: Path, suffix: str, stored: Format) -> None:
    examples = ingest(table(photos, suffix), tmp_path / "out", stored=stored)
    rows = {str(row["file"]): row for row in all_rows(examples)}
    assert rows == {
        f"files/{number}.jpg": {
            "file": f"files/{number}.jpg",
            "image": (photos / "files" / f"{number}.jpg").read_bytes(),
            "label": f"class {number % 2}",
            "price": number + 0.5,
        }
        for number in range(SOUND)
    }
    assert ingest_runs.types(examples) == {"file": "bytes", "image": "bytes", "label": "bytes", "price": "float"}
    bad = bad_rows(examples)
    expected = reasons(photos)
    assert counts(examples)["read"] == SOUND + len(expected) + 1
    assert {row["content"]["file"]: row["column"] for row in bad[:-1]} == dict.fromkeys(expected, "file")
    assert all(row["reason"].startswith(expected[row["content"]["file"]]) for row in bad[:-1])
    first = 2 if suffix == "csv" else 1
    assert [row["row"] for row in bad] == list(range(SOUND + first, SOUND + first + len(bad)))
    assert bad[-1]["reason"] == "expected the name of an image file, received none"


def test_table_can_be_in_another_folder_and_name_its_image_column(photos: Path, tmp_path: Path) -> None:
    lines = (photos / "photos.csv").read_text().splitlines()[: SOUND + 1]
    absolute = f"{photos / 'files' / '0.jpg'},class 1,1"
    (tmp_path / "elsewhere.csv").write_text("\n".join([lines[0], absolute, *lines[2:]]) + "\n")
    section = {"path_column": "file", "folder": str(photos), "column": "photo"}
    config = data(tmp_path / "elsewhere.csv", label="label", images=section, columns=["photo", "label"])
    examples = ingest(config, tmp_path / "out")
    assert {tuple(row) for row in all_rows(examples)} == {("label", "photo")}
    files = [(photos / "files" / f"{number}.jpg").read_bytes() for number in range(SOUND)]
    assert sorted(bytes(row["photo"]) for row in all_rows(examples)) == sorted(files)  # type: ignore[arg-type]


def test_image_files_are_not_read_if_the_image_column_is_not_selected(photos: Path, tmp_path: Path) -> None:
    section = {"path_column": "file", "folder": str(tmp_path)}
    config = data(photos / "photos.csv", label="label", images=section, columns=["file", "label"])
    assert len(all_rows(ingest(config, tmp_path / "out"))) == SOUND + len(reasons(photos)) + 1


def test_copies_of_an_image_are_in_one_split(photos: Path, tmp_path: Path) -> None:
    lines = [f"{photos / 'files' / f'{number}.jpg'},{copy}" for number in range(SOUND) for copy in range(3)]
    (tmp_path / "copies.csv").write_text("file,label\n" + "\n".join(lines) + "\n")
    examples = ingest(data(tmp_path / "copies.csv", images={"path_column": "file"}), tmp_path / "out")
    train_images, eval_images = ({bytes(row["image"]) for row in rows} for rows in by_split(examples).values())  # type: ignore[arg-type]
    assert len(train_images) + len(eval_images) == SOUND


def test_more_bad_images_than_allowed_are_an_error(photos: Path, tmp_path: Path) -> None:
    config = table(photos, "csv").model_copy(update={"bad_rows": data("x").bad_rows})
    error = ingest_error(config, tmp_path / "out")
    assert error.headline.startswith(f"{photos}/photos.csv, row {SOUND + 2}: column file: {photos}/files/corrupt.png: ")


@pytest.mark.parametrize("stored", ["parquet", "tfrecord"])
@pytest.mark.parametrize("file", ["photos.tfrecord", "encoded.parquet"])
def test_encoded_images_are_checked(photos: Path, tmp_path: Path, file: str, stored: Format) -> None:
    section = {"encoded_columns": ["photo"], "max_megapixels": MEGAPIXELS}
    examples = ingest(data(photos / file, label="label", images=section, bad_rows=ANY), tmp_path / "out", stored=stored)
    images = [row.get("photo") for row in all_rows(examples)]
    files = [(photos / "files" / f"{number}.jpg").read_bytes() for number in range(SOUND)]
    assert sorted(image for image in images if isinstance(image, bytes)) == sorted(files)
    assert len(images) == SOUND + 1
    bad = bad_rows(examples)
    assert [row["column"] for row in bad] == ["photo"] * len(images_to_refuse())
    for row, (content, reason) in zip(bad, images_to_refuse().values(), strict=True):
        assert row["reason"].startswith(reason)
        # The file of bad rows contains only the sizes of images.
        assert f"{len(content):,} bytes" in row["content"]["photo"] or len(content) < 1_000
    facts = read_facts(examples, "photo")
    assert sum(image_figures["width"] is None for image_figures in facts) == 1
    assert all(str(image_figures["name"]).startswith(f"b'{file},") for image_figures in facts)


def test_records_without_image_columns_are_not_checked(photos: Path, tmp_path: Path) -> None:
    examples = ingest(data(photos / "photos.tfrecord", label="label"), tmp_path / "out")
    assert counts(examples)["quarantined"] == 0
    assert not (tmp_path / "out" / image_facts.FOLDER).exists()


def read_facts(examples: standard_artifacts.Examples, column: str) -> list[dict[str, Any]]:
    """Return the facts about the images of a column in all splits."""
    fields = ("name", *image_facts.FIGURES, "thumbnail")
    field_names = [f"{column}.{field}" for field in fields]
    rows = []
    for split in ingest_runs.splits(examples):
        assert image_facts.columns(examples.uri, split) == [column]
        rows += [
            row
            for batch in image_facts.read(image_facts.files(examples.uri, split), field_names)
            for row in batch.to_pylist()
        ]
    return [{name.removeprefix(f"{column}."): value for name, value in row.items()} for row in rows]


def test_facts_about_images_are_stored_with_the_examples(photos: Path, tmp_path: Path) -> None:
    examples = ingest(table(photos, "csv"), tmp_path / "out", beam=ingest_runs.TWO_WORKERS)
    for split, rows in by_split(examples).items():
        names = [
            row
            for batch in image_facts.read(image_facts.files(examples.uri, split), ["image.name"])
            for row in batch[0].to_pylist()
        ]
        assert sorted(names) == sorted(str(row["file"]).encode() for row in rows)
    (first,) = (
        image_figures for image_figures in read_facts(examples, "image") if image_figures["name"] == b"files/0.jpg"
    )
    size = (photos / "files" / "0.jpg").stat().st_size
    assert (first["width"], first["height"], first["mode"], first["format"]) == (64, 48, b"RGB", b"JPEG")
    assert (first["file_bytes"], len(first["thumbnail"])) == (size, image_facts.THUMBNAIL**2)
    assert 0.2 < first["brightness"] < 0.8
