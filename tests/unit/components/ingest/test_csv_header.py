"""Headers of text files are read, or rejected with a message."""

from __future__ import annotations

import csv
import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError
from components.ingest import csv_header as headers
from components.ingest.csv_header import Header, check_header, column_names, read_header
from components.ingest.text_config import CsvConfig


def write(folder: Path, content: bytes) -> str:
    (folder / "in.csv").write_bytes(content)
    return str(folder / "in.csv")


def read_header_error(path: str, **options: Any) -> tuple[str, str]:
    with pytest.raises(InputError) as raised:
        read_header(path, CsvConfig(**options))
    return raised.value.headline, raised.value.remedy


@pytest.mark.parametrize(
    ("text", "options", "names", "lines"),
    [
        ("a,b\r\n1,2", {}, ["a", "b"], 1),
        ("\ufeffa,b\n1,2", {}, ["a", "b"], 1),
        ("\n\na,b\n1,2", {}, ["a", "b"], 3),
        ("a;'b;c'\n1;2", {"delimiter": ";", "quote": "'"}, ["a", "b_c"], 1),
        ('a,"b\nc"\n1,2', {}, ["a", "b_c"], 2),
        ("Größe (m),日本\n1,2", {}, ["Grosse_m", "u65e5u672c"], 1),
        ("only\n1", {}, ["only"], 1),
        ("a,b\r1,2\r", {}, ["a", "b"], 1),
        ('a, "b, c"\n1,2', {"skip_initial_space": True}, ["a", "b_c"], 1),
        ("1,x\n", {"header": False}, ["column_1", "column_2"], 0),
        ("\n1,x", {"header": False}, ["column_1", "column_2"], 0),
    ],
)
def test_various_headers_are_read(
    tmp_path: Path, text: str, options: dict[str, Any], names: list[str], lines: int
) -> None:
    for encoding in ("utf-8", "utf-16"):
        path = write(tmp_path, text.encode(encoding))
        assert read_header(path, CsvConfig(encoding=encoding, **options)) == Header(names, lines)


def test_header_of_a_compressed_file_is_read(tmp_path: Path) -> None:
    assert read_header(write(tmp_path, gzip.compress(b"a,b\n1,2\n")), CsvConfig()).names == ["a", "b"]


@pytest.mark.parametrize("row", [b"1,2\n", b""])
def test_header_longer_than_the_first_chunk_is_read_completely(tmp_path: Path, row: bytes) -> None:
    wide = [f"column{number}" for number in range(60_000)]
    path = write(tmp_path, ",".join(wide).encode() + b"\n" + row)
    if row:
        assert read_header(path, CsvConfig()) == Header(wide, 1)
    else:
        assert read_header_error(path)[0] == f"{path} has no rows: there is nothing below its header"


def test_first_row_with_a_very_long_field_is_read(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    path = write(tmp_path, b"1," + b"x" * (1 << 20) + b",2\n")
    assert read_header(path, CsvConfig(header=False)).names == ["column_1", "column_2", "column_3"]
    assert csv.field_size_limit() == limit


def test_unclosed_quote_ends_the_search_for_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_HEAD", 16)
    monkeypatch.setattr(headers, "_MAX_HEADER", 1 << 20)
    path = write(tmp_path, b'"a,b\n' + b"1,2\n" * (1 << 20))
    headline, remedy = read_header_error(path)
    assert headline in (
        f"{path}: the header cannot be read: it is longer than 1 MiB",
        f"{path}: the header cannot be read: field larger than field limit (1048576)",
    )
    assert remedy == "fix the quotes of the first row"


@pytest.mark.parametrize(
    ("content", "headline", "remedy"),
    [
        (b"", "{} has no rows: it is empty (0 bytes)", "add a row below the header"),
        (b"a,b", "{} has no rows: there is nothing below its header", "add a row below the header"),
        (b"a,b\r\n\r\n", "{} has no rows: there is nothing below its header", "add a row"),
        (b"\n\n", "{} has no rows: there is nothing below its header", "add a row"),
        (b"PAR1\x15\x04", "{} is a Parquet file, expected CSV text", "set data.format to parquet"),
        (b"PK\x03\x04 xl/", "{} is a zip archive or a spreadsheet, expected CSV text", "save the sheet as CSV"),
        (b"\x89PNG\r\n\x1a\n", "{} is a PNG image, expected CSV text", "one folder per class"),
        (b"\xd0\xcf\x11\xe0", "{} is a spreadsheet of Excel 97, expected CSV text", "save the sheet as CSV"),
        (b"ARROW1\0\0", "{} is an Arrow or Feather file, expected CSV text", "save it as Parquet or CSV"),
        (b"\x89HDF\r\n", "{} is an HDF5 file, expected CSV text", "save it as Parquet or CSV"),
        (b"SQLite format 3\0", "{} is a SQLite database, expected CSV text", "export the table as CSV"),
        (pickle.dumps([1]), "{} is a Python pickle, expected CSV text", "save it as Parquet or CSV"),
        (b'[\n  {"a": 1}]', "{} is JSON, expected CSV text", "convert it to Parquet or CSV"),
        (b'{"a": 1}\n', "{} is JSON, expected CSV text", "convert it to Parquet or CSV"),
        (b"<!DOCTYPE html>\n", "{} is a web page, expected CSV text", "download the data itself"),
        (b"\xff\xd8\xff", "{} is a JPEG image, expected CSV text", "one folder per class"),
        (b"a,\0b\n1,2\n", "{} is a binary file, expected CSV text: it has a NUL byte at offset 2", "utf-16"),
        (b"a,\xe9\n1,2\n", "{} is not utf-8 text: it has the byte 0xe9", "set data.csv.encoding"),
        (b"a,b,a\n1,2,3\n", "{}: expected columns of different names, received 'a' twice", "rename one of the two"),
        (
            b"a,b-,b?\n1,2,3\n",
            "{}: expected columns of different names, received 'b-' and 'b?', which are both b",
            "rename one of the two",
        ),
        (b"a,,b\n1,2,3\n", "{}: column 2 has no name: expected letters or digits, received ''", "name it"),
        (b"a,?,b\n1,2,3\n", "{}: column 2 has no name: expected letters or digits, received '?'", "name it"),
        (
            b"a;b\n1;2\n",
            "{}: expected columns separated by ',', received a single column 'a;b'",
            "data.csv.delimiter to ';'",
        ),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_files_that_are_not_tables_are_rejected_by_name(
    tmp_path: Path, content: bytes, headline: str, remedy: str, pack: Any
) -> None:
    path = write(tmp_path, pack(content))
    message = read_header_error(path)
    assert message[0] == headline.format(path)
    assert remedy in message[1]


def test_files_without_a_header_are_rejected_with_other_messages(tmp_path: Path) -> None:
    path = write(tmp_path, b"\n\n")
    assert read_header_error(path, header=False)[0] == f"{path} has no rows: all its lines are empty"
    path = write(tmp_path, b"1;2\n")
    assert read_header_error(path, header=False)[1] == "set data.csv.delimiter to ';'"


@pytest.mark.parametrize("content", [b"a,b\n1,2\n3,\xe9\n", b"a,b\n\xe9,2\n"])
def test_row_that_cannot_be_decoded_is_left_to_the_reader(tmp_path: Path, content: bytes) -> None:
    assert read_header(write(tmp_path, content), CsvConfig()) == Header(["a", "b"], 1)


def test_character_at_the_end_of_a_chunk_may_be_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_HEAD", 5)
    assert read_header(write(tmp_path, "a,b\né,1\n".encode()), CsvConfig()).names == ["a", "b"]


def test_files_with_different_headers_are_rejected() -> None:
    check_header("2.csv", Header(["a", "b"], 1), "1.csv", ["a", "b"])
    for result, message in (
        (["a", "c"], "without 'b'; with 'c'"),
        (["a"], "without 'b'"),
        (["a", "b", "c", "d"], "with 'c', 'd'"),
        (["b", "a"], "the same columns in another order"),
    ):
        with pytest.raises(InputError) as raised:
            check_header("2.csv", Header(result, 1), "1.csv", ["a", "b"])
        assert raised.value.headline == f"2.csv: expected the header of 1.csv, received {message}"


def test_column_names_are_normalized() -> None:
    assert column_names("x", ["Trip Miles", "a", "2020"]) == ["Trip_Miles", "a", "x2020"]
