"""Text as columns: types over whole files, every value kept, and each bad row named."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.errors import InputError
from components.ingest import source, table
from components.ingest.config import CsvConfig, ValueType
from components.ingest.table import BadRow, Kind, Profile


def profile(path: Path, types: dict[str, ValueType] | None = None, **options: Any) -> Profile:
    config = CsvConfig(**options)
    return table.profile(str(path), str(path), source.header(str(path), config).names, config, types or {})


def read(path: Path, types: dict[str, ValueType] | None = None, **options: Any) -> dict[str, list[Any]]:
    found = profile(path, types, **options)
    assert found.error() is None
    batches = list(table.read(str(path), found.kinds, CsvConfig(**options), found.block))
    assert sum(batch.num_rows for batch in batches) == found.rows
    return pa.Table.from_batches(batches).to_pydict()


def write(folder: Path, content: str | bytes, name: str = "in.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        (["1", "-2", "007"], [1, -2, 7]),
        (["1", "", "2"], [1, None, 2]),
        (["1", "2.5"], [1.0, 2.5]),
        (["1.0", "2.0"], [1.0, 2.0]),
        (["1e3", ".5", "-1."], [1000.0, 0.5, -1.0]),
        (["1", "x"], [b"1", b"x"]),
        (["1.5", "x"], [b"1.5", b"x"]),
        (["", ""], [None, None]),
        # Python's int and float decide, as in TFX's CsvExampleGen.
        ([" 7", "+8", "1_000"], [7, 8, 1000]),
        (["+8", "9"], [8, 9]),
        ([" 7", "+8.5"], [7.0, 8.5]),
        (["0x1F", "1"], [b"0x1F", b"1"]),
        (["1", "nan"], [1.0, math.nan]),
        (["inf", "-Infinity"], [math.inf, -math.inf]),
        (["nan(1)", "1.5"], [b"nan(1)", b"1.5"]),
        (["1e400"], [math.inf]),
        # float32 is all that an Example has.
        (["0.1", "1e300"], [float(np.float32(0.1)), math.inf]),
        # An integer beyond int64 is an identifier, not a quantity.
        (["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        (["1", "9223372036854775808"], [b"1", b"9223372036854775808"]),
        (["1.5", "9223372036854775808"], [b"1.5", b"9223372036854775808"]),
        (["1" * 400], [b"1" * 400]),
        (["true", "2020-01-01"], [b"true", b"2020-01-01"]),
    ],
)
def test_the_type_of_a_column_is_the_least_that_holds_every_field(
    tmp_path: Path, fields: list[str], values: list[object]
) -> None:
    # A second column, because an empty line is no row.
    path = write(tmp_path, "a,b\n" + "".join(f"{field},0\n" for field in fields))
    np.testing.assert_equal(read(path)["a"], values)
    np.testing.assert_equal(read(write(tmp_path, "a,b\n" + "".join(f'"{x}",0\n' for x in fields)))["a"], values)


@pytest.mark.parametrize(("late", "kind"), [("1.5", Kind.FLOAT), ("x", Kind.BYTES), ("9" * 19, Kind.BYTES)])
def test_a_late_field_decides_over_the_whole_file_set(tmp_path: Path, late: str, kind: Kind) -> None:
    rows = "a,b\n" + "12345,1\n" * 300_000
    alone = profile(write(tmp_path, rows + f"{late},1\n"))
    assert alone.kinds == {"a": kind, "b": Kind.INT}
    assert alone.rows == 300_001
    first, last = profile(write(tmp_path, rows)), profile(write(tmp_path, f"a,b\n{late},1\n", "last.csv"))
    assert table.merge([first, last]).kinds == table.merge([last, first]).kinds == alone.kinds
    values = list(table.read(str(tmp_path / "in.csv"), alone.kinds, CsvConfig(), alone.block))
    assert len(values) > 2
    assert {batch.schema for batch in values} == {values[0].schema}


def test_types_that_are_given_are_taken(tmp_path: Path) -> None:
    path = write(tmp_path, "zip,n,x\n01234,1,1\n,,\n")
    assert read(path, {"zip": "bytes", "n": "float"}) == {"zip": [b"01234", None], "n": [1.0, None], "x": [1, None]}


@pytest.mark.parametrize(
    ("content", "options", "rows"),
    [
        ('a,b\r\n1,"x\r\ny"\r\n2,"say ""hi"""', {}, [[1, 2], [b"x\r\ny", b'say "hi"']]),
        ("\ufeffa,b\n1,x\n\n\n2,y", {}, [[1, 2], [b"x", b"y"]]),
        ("a;b\n1;'x;y'\n", {"delimiter": ";", "quote": "'"}, [[1], [b"x;y"]]),
        ("a\tb\n1\tx,y\n", {"delimiter": "\t"}, [[1], [b"x,y"]]),
        ('a,b\nNA,x\n3,?\n"NA",""\n', {"null_values": ("NA", "?")}, [[None, 3, None], [b"x", None, None]]),
        ('a,b\nx"y,5"\n', {}, [[b'x"y'], [b'5"']]),
        ("\na,b\r1,x\r2,y\r", {}, [[1, 2], [b"x", b"y"]]),
        ('a,"b\nc"\n1,2\n', {}, [[1], [2]]),
        ("ä ö,日本\n1,é\n", {}, [[1], ["é".encode()]]),
        ("a,b\n1,é\n", {"encoding": "cp1252"}, [[1], ["é".encode()]]),
        ("a,b\n1,é\n", {"encoding": "utf-16"}, [[1], ["é".encode()]]),
        ('a,b\n1,"x\n"\n', {}, [[1], [b"x\n"]]),
    ],
)
def test_text_as_it_comes(tmp_path: Path, content: str, options: dict[str, Any], rows: list[list[object]]) -> None:
    path = write(tmp_path, content.encode(options.get("encoding", "utf-8")))
    assert list(read(path, **options).values()) == rows


def test_one_column_knows_empty_lines_from_missing_values(tmp_path: Path) -> None:
    assert read(write(tmp_path, 'a\n1\n\n""\n2\n')) == {"a": [1, None, 2]}


def test_a_field_longer_than_a_block_is_read(tmp_path: Path) -> None:
    long = "x" * (3 << 20)
    path = write(tmp_path, f'a,b\n1,"{long}"\n' + "2,y\n" * 10)
    found = profile(path)
    assert found.block > 3 << 20
    assert read(path)["b"] == [long.encode(), *[b"y"] * 10]
    assert table.merge([found, Profile()]).block == found.block


def test_ragged_rows_are_counted_and_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b\n" + "1,2\n" * 5 + "1\n" + "3,4\n" * 400_000 + "1,2,3\n" * 9)
    error = profile(path).error()
    assert error is not None
    assert error.headline == f"{path}, row 7: expected 2 fields, received 1"
    assert error.details == (
        *(f"{path}, row {row}: expected 2 fields, received 3" for row in range(400_008, 400_012)),
        "and 5 more",
    )
    assert error.exit_code == 2


def test_rows_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    # Ragged rows are skipped on the way, and must not shift the numbers of those below.
    path = write(tmp_path, "a,b\n1\n1\n5,x\n1,2,3\ny,\xe9\n".encode("latin-1"))
    found = profile(path, {"a": "int"})
    assert found.bad_rows == (
        BadRow(str(path), 2, "expected 2 fields, received 1"),
        BadRow(str(path), 3, "expected 2 fields, received 1"),
        BadRow(str(path), 5, "expected 2 fields, received 3"),
        BadRow(str(path), 6, "column a: expected an int64, received 'y'"),
        BadRow(str(path), 6, "column b: expected utf-8 text, received '\\xe9'"),
    )
    assert (found.rows, found.bad) == (5, 5)


@pytest.mark.parametrize(
    ("type_", "field", "expected"),
    [("int", "1.5", "an int64"), ("int", "9" * 19, "an int64"), ("float", "1,5", "a float"), ("float", "x" * 60, "")],
)
def test_fields_that_do_not_fit_a_given_type_are_named(
    tmp_path: Path, type_: ValueType, field: str, expected: str
) -> None:
    path = write(tmp_path, f'a,b\n1,x\n,y\n"{field}",z\n2,x\n')
    error = profile(path, {"a": type_}).error()
    assert error is not None
    assert error.headline.startswith(f"{path}, row 4: column a: expected {expected}")
    assert len(error.headline) < len(str(path)) + 120


def test_bad_rows_of_several_files_are_told_in_order(tmp_path: Path) -> None:
    one = profile(write(tmp_path, "a,b\n1\n1\n1\n", "1.csv"))
    two = profile(write(tmp_path, "a,b\n1,2\n1\n1\n1\n1\n", "2.csv"))
    for both in (table.merge([one, two]), table.merge([two, one]), table.merge([table.merge([two]), one])):
        assert [(Path(bad.path).name, bad.row) for bad in both.bad_rows] == [
            ("1.csv", 2), ("1.csv", 3), ("1.csv", 4), ("2.csv", 3), ("2.csv", 4)
        ]  # fmt: skip
        assert (both.bad, both.rows) == (7, 8)


def test_undecodable_text_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,b\n" + b"1,2\n" * 200_000 + b"3,\x81\n")
    with pytest.raises(InputError) as raised:
        profile(path, encoding="cp1252")
    assert raised.value.headline == f"{path} is not cp1252 text: it has the byte 0x81"


def test_a_quote_that_is_never_closed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        profile(write(tmp_path, 'a,b\n1,x\n2,"y\n3,z\n4,w\n'))
    assert raised.value.headline == f"{tmp_path}/in.csv, row 3: a quote is opened and never closed"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ragged_rows_that_cannot_be_decoded_are_named(tmp_path: Path) -> None:
    found = profile(write(tmp_path, b"a,b\n1,2\n\xff\n\xff,1\n1\n"))
    assert [(bad.row, bad.reason) for bad in found.bad_rows] == [
        (3, "expected 2 fields, received 1"), (5, "expected 2 fields, received 1")
    ]  # fmt: skip


def test_a_file_with_another_header_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a,c\n1,2\n")
    with pytest.raises(InputError) as raised:
        table.profile(str(path), "first.csv", ["a", "b"], CsvConfig(), {})
    assert raised.value.headline == f"{path}: expected the header of first.csv, received without 'b'; with 'c'"


def _value(text: str) -> object:
    """What Python takes a field for: the rule that the reader follows in columns."""
    for parse in (int, float):
        try:
            value = parse(text)
        except ValueError:
            continue
        return value if parse is float or -(2**63) <= value < 2**63 else text
    return text


def _column(fields: list[str]) -> list[object]:
    """A column by that rule, field by field."""
    values = [_value(field) if field else None for field in fields]
    if any(isinstance(value, str) for value in values):
        return [field.encode() if field else None for field in fields]
    if any(isinstance(value, float) for value in values):
        with np.errstate(over="ignore"):
            return [float(np.float32(float(field))) if field else None for field in fields]
    return values


# csv.writer cannot write a lone surrogate; NUL is refused; some text that looks like numbers, and quite a few that do.
_text = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=8)
_numbers = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.floats(width=32).map(str),
    st.floats().map(repr),
    st.sampled_from(["+1", " 2", "3 ", "1_0", "0x1F", "1e5", "nan", "-inf", "1e999", "٣", "007", "-0", "-0.0", "1."]),
)
_fields = st.one_of(st.just(""), _numbers, _text)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_table_is_read_as_python_reads_it(tmp_path: Path, data: st.DataObject) -> None:
    width = data.draw(st.integers(2, 4))
    kinds = [data.draw(st.sampled_from([_fields, _numbers, st.integers(-99, 99).map(str)])) for _ in range(width)]
    rows = data.draw(st.lists(st.tuples(*kinds), min_size=1, max_size=12))
    delimiter, line = data.draw(st.sampled_from(",;\t|")), data.draw(st.sampled_from(["\n", "\r\n"]))
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=line, quoting=data.draw(st.sampled_from([0, 1])))
    writer.writerows([[f"c{at}" for at in range(width)], *rows])
    path = write(tmp_path, text.getvalue())
    expected = [_column([row[at] for row in rows]) for at in range(width)]
    np.testing.assert_equal(list(read(path, delimiter=delimiter).values()), expected)


# Arrow complains on the side when it cannot decode the text of a ragged row; the row is named all the same.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([b",", b"\n", b'"', b"\r\n", b"1", b"x", b"\xff", b"\0", b"\xc3\xa9"]), max_size=40))
def test_any_bytes_are_read_or_refused(tmp_path: Path, pieces: list[bytes]) -> None:
    path = write(tmp_path, b"a,b\n1,2\n" + b"".join(pieces))
    try:
        found = profile(path)
    except InputError:
        return
    if found.error() is None:
        assert (
            sum(batch.num_rows for batch in table.read(str(path), found.kinds, CsvConfig(), found.block)) == found.rows
        )
