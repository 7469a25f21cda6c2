"""Columns of the input are known before a run, and configs that do not fit them are rejected."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from components.base.errors import InputError
from components.ingest import input_files, readers
from components.ingest.config import DataConfig, IngestConfig
from components.ingest.csv_reader import CsvReader
from components.ingest.image_reader import ImageReader
from components.ingest.image_table import ImageTable
from components.ingest.parquet_reader import ParquetReader


def data(path: object, **more: Any) -> DataConfig:
    return DataConfig(path=str(path), label="a", **more)


def write(path: Path, content: bytes | str = "a,b\n1,2\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def columns_error(config: DataConfig) -> tuple[str, str]:
    with pytest.raises(InputError) as raised:
        readers.columns(config)
    return raised.value.headline, raised.value.remedy


def test_columns_of_every_format_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "csv" / "1.csv", "Trip Miles,a\n1,2\n")
    write(tmp_path / "csv" / "2.csv", "Trip Miles,a\n1,2\n")
    assert readers.columns(data(tmp_path / "csv")) == ["Trip_Miles", "a"]
    assert readers.columns(data(tmp_path / "csv", columns=["a"])) == ["a"]
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.table({"Trip Miles": [1], "a": [2]}), str(tmp_path / "parquet" / "1.parquet"))
    assert readers.columns(data(tmp_path / "parquet")) == ["Trip_Miles", "a"]
    write(tmp_path / "images" / "cat" / "1.png", b"")
    assert readers.columns(data(tmp_path / "images")) == ["image", "label", "path"]
    query = DataConfig.model_validate({"bigquery": {"query": "SELECT 1"}, "label": "a"})
    assert readers.columns(query) is None


def test_files_of_predefined_splits_must_have_the_same_columns(tmp_path: Path) -> None:
    write(tmp_path / "1.csv")
    write(tmp_path / "2.csv", "a,c\n1,2\n")
    split = {"by": "files", "train": ["1.csv"], "eval": ["2.csv"]}
    assert columns_error(data(tmp_path, split=split))[0] == (
        f"{tmp_path}/2.csv: expected the header of {tmp_path}/1.csv, received without 'b'; with 'c'"
    )


@pytest.mark.parametrize(
    ("content", "headline", "remedy"),
    [
        (b"", "{} has no rows: it is empty (0 bytes)", "add a row below the header"),
        (b"a,b\r\n\r\n", "{} has no rows: there is nothing below its header", "add a row"),
        (
            gzip.compress(b"a,b\n", mtime=0),
            "{} has no rows: there is nothing below its header",
            "add a row",
        ),
        (b"\x89PNG\r\n\x1a\n", "{} is a PNG image, expected CSV text", "one folder per class"),
        (b"a,b,a\n1,2,3\n", "{}: expected columns of different names, received 'a' twice", "rename one of the two"),
    ],
)
def test_files_that_are_not_tables_are_rejected_by_name(
    tmp_path: Path, content: bytes, headline: str, remedy: str
) -> None:
    write(tmp_path / "good.csv", "a,b\n1,2\n")
    path = write(tmp_path / "odd.csv", content)
    assert columns_error(data(path))[0] == headline.format(path)
    assert remedy in columns_error(data(path))[1]
    # The file is also reported if it is one of several files.
    assert columns_error(data(tmp_path))[0] == headline.format(path)


def test_files_with_different_headers_are_rejected(tmp_path: Path) -> None:
    first, second = write(tmp_path / "1.csv"), write(tmp_path / "2.csv", "b,a\n1,2\n")
    assert columns_error(data(tmp_path))[0] == (
        f"{second}: expected the header of {first}, received the same columns in another order"
    )


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"types": {"fair": "int"}}, "data.types: there is no column 'fair'; did you mean 'fare'?"),
        ({"columns": ["fair"]}, "data.columns: there is no column 'fair'; did you mean 'fare'?"),
        (
            {"split": {"by": "group", "columns": "user", "train": 1, "eval": 1}},
            "data.split.columns: there is no column 'user'; expected one of fare, tips",
        ),
        (
            {"columns": ["fare"], "split": {"columns": "tips", "train": 1, "eval": 1}},
            "data.split.columns: 'tips' is not among data.columns",
        ),
    ],
)
def test_unknown_columns_are_rejected(tmp_path: Path, section: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "1.csv", "fare,tips\n1,2\n")
    assert columns_error(data(path, **section))[0] == message
    with pytest.raises(InputError) as raised:
        readers.reader(data(path, **section).ingest("csv"), [str(path)])
    assert raised.value.headline == message


@pytest.mark.parametrize(
    ("format_", "section", "message"),
    [
        (
            "tfrecord",
            {"images": {"path_column": "a"}},
            "data.images.path_column has no meaning with tfrecord files: it is a column of a table",
        ),
        (
            "parquet",
            {"images": {"path_column": "path", "column": "photo"}, "types": {"photo": "bytes"}},
            "data.types: the column 'photo' of images is always bytes",
        ),
        ("images", {"types": {"image": "int"}}, "data.types: the column 'image' of images is always bytes"),
        ("images", {"columns": ["label"]}, "data.columns has no meaning with images files: images have three columns"),
        ("tfrecord", {"columns": ["a"]}, "data.columns has no meaning with tfrecord files: records are passed on"),
        ("tfrecord", {"types": {"a": "int"}}, "data.types has no meaning with tfrecord files: records are passed on"),
    ],
)
def test_option_of_another_format_is_rejected(format_: Any, section: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        readers.check_names(IngestConfig(**section), [*input_files.IMAGE_COLUMNS, "a"], format_)
    assert raised.value.headline.startswith(message)
    assert raised.value.remedy == "remove it"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"path_column": "fil"}, "data.images.path_column: there is no column 'fil'; did you mean 'file'?"),
        ({"path_column": "file", "column": "a"}, "data.images.column: the data has a column 'a' already"),
        ({"path_column": "file", "folder": "no/such"}, "data.images.folder: there is no folder no/such"),
        ({"encoded_columns": "b"}, "data.images.encoded_columns: there is no column 'b'; expected one of a, file"),
        (
            {"encoded_columns": "file"},
            "the column 'file' is read as images: expected encoded images, received text of a CSV file",
        ),
    ],
)
def test_columns_of_images_are_checked(tmp_path: Path, section: dict[str, Any], message: str) -> None:
    write(tmp_path / "1.csv", "file,a\n1.jpg,2\n")
    assert columns_error(data(tmp_path, images=section))[0] == message


def test_table_of_images_has_an_additional_column(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", "file,a\n1.jpg,2\n")
    images = {"path_column": "file", "folder": str(tmp_path)}
    assert readers.columns(data(tmp_path, images=images)) == ["file", "a", "image"]
    assert readers.columns(data(tmp_path, images=images, columns=["image", "a"])) == ["a", "image"]
    path = str(tmp_path / "1.csv")
    for columns, kind in (([], ImageTable), (["image"], ImageTable), (["file", "a"], CsvReader)):
        config = data(path, images=images, columns=columns).ingest("csv")
        assert isinstance(readers.reader(config, [path]), kind)


def test_reader_depends_on_the_format(tmp_path: Path) -> None:
    text = write(tmp_path / "1.csv")
    table = str(tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1]}), table)
    image = write(tmp_path / "0" / "1.png", b"")
    for format_, path, kind in (
        ("csv", text, CsvReader), ("parquet", table, ParquetReader), ("images", image, ImageReader)
    ):  # fmt: skip
        assert isinstance(readers.reader(IngestConfig(format=format_), [str(path)]), kind)


def test_thousands_of_files_are_checked_without_heavy_imports(tmp_path: Path) -> None:
    for number in range(2000):
        write(tmp_path / f"{number}.csv", "a,b\n1,2\n")
    script = (
        "import sys; from components.ingest import input_files, readers\n"
        "from components.ingest.config import DataConfig\n"
        f"config = DataConfig(path={str(tmp_path)!r}, label='a')\n"
        "assert readers.columns(config) == ['a', 'b'] and len(input_files.files(config)['all-0']) == 2000\n"
        "heavy = {'tensorflow', 'tfx', 'apache_beam', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env={**os.environ, "PYTHONPATH": "."})
