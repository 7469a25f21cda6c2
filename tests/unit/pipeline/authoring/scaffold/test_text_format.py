"""Tests for the encoding, delimiter and decimal sign of text files, which init detects or asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from components.base.errors import InputError
from pipeline.authoring.scaffold import draft
from pipeline.authoring.scaffold.sample import Table, read
from pipeline.authoring.scaffold.text_format import Sign, TextFormat, decimal_sign


def read_table(folder: Path, text: str, file_encoding: str, encoding: str | None = None) -> Table:
    path = folder / "table.csv"
    path.write_bytes(text.encode(file_encoding))
    return read([str(path)], TextFormat(encoding))


def make_rows(*texts: str) -> str:
    return "city,n\n" + "".join(f"{text},{number}\n" for number, text in enumerate(texts * 20))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be"])
def test_encoding_is_detected(encoding: str, tmp_path: Path) -> None:
    sample = read_table(tmp_path, make_rows("Köln", "Düren", "Bonn"), encoding)
    assert {city.as_py().decode() for city in sample.columns["city"].unique()} == {"Köln", "Düren", "Bonn"}
    assert sample.bad == 0
    assert bool(sample.format_notes) == (encoding not in ("utf-8", "utf-8-sig"))
    if encoding == "cp1252":
        assert "'Düren'" in sample.format_notes[0]


def test_error_of_an_ambiguous_encoding_shows_a_word_in_several_encodings(tmp_path: Path) -> None:
    cities = make_rows("Москва", "Казань")
    with pytest.raises(InputError, match="is not utf-8 text") as refused:
        read_table(tmp_path, cities, "cp1251")
    assert "--encoding" in refused.value.remedy
    assert "--encoding cp1251: 'Москва'" in refused.value.details
    sample = read_table(tmp_path, cities, "cp1251", encoding="cp1251")
    assert sample.columns["city"][0].as_py().decode() == "Москва"


def test_rows_with_another_encoding_after_the_head_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.authoring.scaffold.text_format._HEAD", 50)
    cities = make_rows("Bonn", "Bonn", "Bonn", "Bonn", "Bonn", "Bonn", "Bonn", "Bonn", "Köln")
    with pytest.raises(InputError, match="20 of 180 rows cannot be read: column city: expected utf-8 text") as refused:
        read_table(tmp_path, cities, "cp1252")
    assert "--encoding" in refused.value.remedy
    assert read_table(tmp_path, cities, "cp1252", encoding="utf-8").bad == 20
    assert read_table(tmp_path, cities, "cp1252", encoding="cp1252").bad == 0


@pytest.mark.parametrize(
    ("text", "options", "message", "remedy"),
    [
        (
            "a^b\n1^2\n3^4\n",
            {},
            "expected two columns or more between ',', received the one column 'a^b'",
            "such as '^'",
        ),
        ("a;b\n1;2\n3;4\n", {"delimiter": ","}, "received the one column 'a;b'", "--delimiter with .* such as ';'"),
        ("a\n1\n3\n", {}, "received the one column 'a'", "--delimiter"),
        ("a,b\n1,2\n", {"encoding": "utf-16-le"}, "table.csv", "--encoding|--delimiter"),
    ],
)
def test_wrong_delimiter_or_encoding_is_reported(
    text: str, options: dict[str, str], message: str, remedy: str, tmp_path: Path
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        draft([str(path)], "b", None, TextFormat(**options))
    assert message in refused.value.headline
    assert re.search(remedy.replace("'^'", r"'\^'"), refused.value.remedy)


def test_delimiter_option_is_written_to_the_config(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a^b\n" + "".join(f"{row % 9}^{row % 2}\n" for row in range(50)))
    assert "csv: {delimiter: ^}" in draft([str(path)], "b", None, TextFormat(delimiter="^")).config("s")


@pytest.mark.parametrize(
    ("columns", "sign", "hints"),
    [
        ({"a": ["3,14", "2", None]}, ",", []),
        ({"a": ["1.234,5", "1.234"]}, ",", []),
        ({"a": ["0,125", "1"]}, ",", []),
        ({"a": ["1,234", "5,678"]}, ".", ["a"]),
        ({"a": ["1,234", "5,678"], "b": ["2,5", "1"]}, ",", []),
        ({"a": ["2,5", "1"], "b": ["2.5", "1"]}, ".", ["a"]),
        ({"a": ["2,5"], "b": ["-0,5"], "c": ["2.5"]}, ",", ["c"]),
        ({"a": ["2,5", "x"], "b": ["x,y", "2"], "c": ["31.12.2024", None]}, ".", []),
        ({"a": ["1", "2"], "b": [None, None]}, ".", []),
    ],
)
def test_decimal_sign_of_most_columns_is_chosen(
    columns: dict[str, Sequence[str | None]], sign: Sign, hints: list[str]
) -> None:
    arrays = [pa.array([text and text.encode() for text in column], pa.binary()) for column in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, list(columns))
    choice = decimal_sign(batch, None)
    assert (choice.sign, list(choice.hints)) == (sign, hints)
    assert bool(choice.why) == (sign == ",")
    assert decimal_sign(batch, ".").sign == "."


def test_decimal_comma_is_detected_and_written_to_the_config(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("price;n\n" + "".join(f"1.{row:03},5;{row % 2}\n" for row in range(99)) + "-;1\n")
    drafted = draft([str(path)], "n")
    assert "csv: {delimiter: ;, null_values: ['', '-'], decimal: ','}" in drafted.config("s")
    assert drafted.table.columns["price"][7].as_py() == 1007.5
    assert drafted.table.columns["price"].null_count == 1
