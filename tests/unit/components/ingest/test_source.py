"""Finding input files and reading headers, with every input that is refused and the words it is refused with."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.errors import InputError
from components.ingest import source
from components.ingest.config import CsvConfig, DataConfig


def data(path: object, **more: Any) -> DataConfig:
    return DataConfig(path=str(path), label="a", **more)


def write(path: Path, content: bytes | str = "a,b\n1,2\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(config: DataConfig) -> tuple[str, str]:
    with pytest.raises(InputError) as raised:
        source.columns(config)
    return raised.value.headline, raised.value.remedy


def test_a_file_a_folder_and_a_pattern_are_found(tmp_path: Path) -> None:
    first, second = write(tmp_path / "in" / "one.csv"), write(tmp_path / "in" / "two.CSV")
    write(tmp_path / "in" / "notes.md", "no data")
    write(tmp_path / "in" / ".hidden.csv", "no data")
    both = [str(first), str(second)]
    assert source.files(data(first)) == [str(first)]
    assert source.files(data(tmp_path / "in")) == both
    assert source.files(data(f"{tmp_path}/in/")) == both
    assert source.files(data(tmp_path / "i?" / "*.[cC]*")) == both
    assert source.columns(data(tmp_path / "in")) == ["a", "b"]


def test_paths_start_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "one.csv")
    monkeypatch.chdir(tmp_path)
    assert source.files(data("one.csv")) == ["one.csv"]
    assert source.files(data(".")) == ["./one.csv"]
    assert source.files(data("*.csv")) == ["one.csv"]


def test_names_that_look_like_patterns_are_names_if_they_exist(tmp_path: Path) -> None:
    odd = write(tmp_path / "run[1]" / "what?.csv")
    write(tmp_path / "run1" / "whats.csv")
    assert source.files(data(odd)) == [str(odd)]
    assert source.files(data(odd.parent)) == [str(odd)]


def test_folders_of_images_are_found(tmp_path: Path) -> None:
    images = [write(tmp_path / name, b"") for name in ("cat/1.png", "cat/2.JPG", "dog/1.jpeg")]
    write(tmp_path / "cat" / ".DS_Store", b"")
    assert source.find(data(tmp_path)).format == "images"
    assert source.files(data(tmp_path)) == list(map(str, images))
    assert source.files(data(tmp_path / "*" / "1.*")) == [str(images[0]), str(images[2])]
    assert source.columns(data(tmp_path)) == ["image", "label", "path"]


def test_a_url_goes_through_tfx_file_systems(tmp_path: Path) -> None:
    # TFX knows no scheme file://, so this takes TensorFlow's file systems, as gs:// does.
    write(tmp_path / "one.csv", "a,b\n1,2\n")
    write(tmp_path / ".hidden.csv", "")
    url = f"file://{tmp_path}"
    assert source.files(data(url)) == [f"{url}/one.csv"]
    assert source.files(data(f"{url}/one.csv")) == [f"{url}/one.csv"]
    assert source.columns(data(f"{url}/o*.csv")) == ["a", "b"]
    assert refused(data(f"{url}/two.csv"))[0] == f"data.path: {url}/two.csv does not exist"
    with source.open_binary(f"{url}/one.csv") as file:
        file.seek(-4, 2)
        assert file.read() == b"1,2\n"


@pytest.mark.parametrize(
    ("text", "options", "names", "lines"),
    [
        ("a,b\r\n1,2", {}, ["a", "b"], 1),
        ("\ufeffa,b\n1,2", {}, ["a", "b"], 1),
        ("\n\na,b\n1,2", {}, ["a", "b"], 3),
        ("a;'b;c'\n1;2", {"delimiter": ";", "quote": "'"}, ["a", "b;c"], 1),
        ('a,"b\nc"\n1,2', {}, ["a", "b\nc"], 2),
        ("ä ö,日本\n1,2", {}, ["ä ö", "日本"], 1),
        ("only\n1", {}, ["only"], 1),
        ("a,b\r1,2\r", {}, ["a", "b"], 1),
    ],
)
def test_headers_as_they_come(tmp_path: Path, text: str, options: dict[str, str], names: list[str], lines: int) -> None:
    for encoding in ("utf-8", "utf-16"):
        path = write(tmp_path / "one.csv", text.encode(encoding))
        assert source.header(str(path), CsvConfig(encoding=encoding, **options)) == source.Header(names, lines)


def test_a_missing_path_is_refused_with_its_nearest_sibling(tmp_path: Path) -> None:
    write(tmp_path / "trips.csv")
    headline, remedy = refused(data(tmp_path / "trip.csv"))
    assert headline == f"data.path: {tmp_path}/trip.csv does not exist; did you mean '{tmp_path}/trips.csv'?"
    assert remedy.startswith("set data.path to a file, a folder or a pattern")
    assert refused(data("/no/such/file.csv"))[0] == "data.path: /no/such/file.csv does not exist"


def test_folders_and_patterns_without_data_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "other" / "x.json", "{}")
    write(tmp_path / "spark" / "data.csv" / "part-0.csv")
    assert refused(data(tmp_path / "empty"))[0] == (
        "data.path: expected *.csv, *.tsv or *.txt files, or a folder of PNG or JPEG files for each class "
        f"in the folder {tmp_path}/empty, received nothing (it is empty)"
    )
    assert refused(data(tmp_path / "other", format="csv"))[0] == (
        f"data.path: expected *.csv, *.tsv or *.txt files in the folder {tmp_path}/other, received x.json"
    )
    assert refused(data(tmp_path / "other", format="images"))[0] == (
        "data.path: expected a folder of PNG or JPEG files for each class "
        f"in the folder {tmp_path}/other, received x.json"
    )
    assert refused(data(tmp_path / "*.csv"))[0] == f"data.path: no file matches {tmp_path}/*.csv"
    assert refused(data(tmp_path / "spark"))[0] == (
        f"data.path: expected files, but {tmp_path}/spark/data.csv is a folder"
    )


@pytest.mark.parametrize(
    ("content", "headline", "remedy"),
    [
        (b"", "{} has no rows: it is empty (0 bytes)", "give it at least one row below a header"),
        (b"a,b", "{} has no rows: there is nothing below its header", "give it at least one row below a header"),
        (b"a,b\r\n\r\n", "{} has no rows: there is nothing below its header", "give it at least one row"),
        (b"\n\n", "{} has no rows: there is nothing below its header", "give it at least one row"),
        (gzip.compress(b"a,b\n1,2\n"), "{} is gzip-compressed, expected CSV text", "unpack it first (gunzip)"),
        (b"PAR1\x15\x04", "{} is a Parquet file, expected CSV text", "export it as CSV"),
        (b"PK\x03\x04 xl/", "{} is a zip archive or a spreadsheet, expected CSV text", "save the sheet as CSV"),
        (b"\x89PNG\r\n\x1a\n", "{} is a PNG image, expected CSV text", "one folder for each class"),
        (b"a,\0b\n1,2\n", "{} is a binary file, expected CSV text: it has a NUL byte at offset 2", "utf-16"),
        (b"a,\xe9\n1,2\n", "{} is not utf-8 text: it has the byte 0xe9", "set data.csv.encoding"),
        (b"a,b,a\n1,2,3\n", "{}: the column 'a' stands twice in the header", "rename one of the two"),
        (b"a,,b\n1,2,3\n", "{}: column 2 of the header has no name", "name it in the first row"),
        (b"a;b\n1;2\n", "{}: expected columns between ',', received the one column 'a;b'", "data.csv.delimiter to ';'"),
    ],
)
def test_files_that_are_no_tables_are_refused_by_name(
    tmp_path: Path, content: bytes, headline: str, remedy: str
) -> None:
    write(tmp_path / "good.csv", "a,b\n1,2\n")
    path = write(tmp_path / "odd.csv", content)
    assert refused(data(path))[0] == headline.format(path)
    assert remedy in refused(data(path))[1]
    # The same among good ones.
    assert refused(data(tmp_path))[0] == headline.format(path)


def test_files_with_different_headers_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "1.csv", "a,b\n1,2\n")
    second = write(tmp_path / "2.csv", "a,c\n1,2\n")
    expected = f"{second}: expected the header of {first}, received"
    assert refused(data(tmp_path))[0] == f"{expected} without 'b'; with 'c'"
    write(second, "b,a\n1,2\n")
    assert refused(data(tmp_path))[0] == f"{expected} the same columns in another order"


def test_types_of_unknown_columns_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "1.csv", "fare,tips\n1,2\n")
    assert refused(data(path, types={"fair": "int"}))[0] == (
        "data.types: there is no column 'fair'; did you mean 'fare'?"
    )
    write(tmp_path / "in" / "cat" / "1.png", b"")
    assert refused(data(tmp_path / "in", types={"image": "int"}))[0] == (
        "data.types: the column 'image' of images is always bytes"
    )


def test_a_row_that_cannot_be_decoded_is_left_to_the_reader(tmp_path: Path) -> None:
    path = write(tmp_path / "1.csv", b"a,b\n1,2\n3,\xe9\n")
    assert source.columns(data(path)) == ["a", "b"]


def test_thousands_of_files_and_nothing_heavy_imported(tmp_path: Path) -> None:
    for number in range(2000):
        write(tmp_path / f"{number}.csv", "a,b\n1,2\n")
    script = (
        "import sys; from components.ingest import source; from components.ingest.config import DataConfig\n"
        f"config = DataConfig(path={str(tmp_path)!r}, label='a')\n"
        "assert source.columns(config) == ['a', 'b'] and len(source.files(config)) == 2000\n"
        "heavy = {'tensorflow', 'tfx', 'apache_beam', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env={**os.environ, "PYTHONPATH": "."})
