"""Unusual, damaged and large CSV files are ingested without losing track of a row."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from components.ingest import csv_reader, executor
from components.ingest.column_types import Kind
from components.ingest.config import DataConfig
from tests.support.runs import ingest_runs
from tests.support.runs.ingest_runs import (
    TWO_WORKERS,
    all_rows,
    bad_rows,
    by_split,
    counts,
    data,
    ingest,
    ingest_error,
    run_without_beam,
)

ANY: dict[str, Any] = {"bad_rows": {"max_fraction": 1}}
NUMBERS = "".join(f"{row},x\n" for row in range(60))
"""Rows of the columns `a` and `b`; there are enough rows for two splits."""


def write(folder: Path, content: str | bytes, name: str = "in.csv") -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.csv", ("a,b\n" + NUMBERS).replace("\n", "\r\n").encode()),
        ("in.csv", ("a,b\n" + NUMBERS).replace("\n", "\r").encode()),
        ("in.csv", b"\xef\xbb\xbf" + ("a,b\n" + NUMBERS).encode()),
        ("in.csv", ('"a","b"\n' + NUMBERS.replace("x", '"x"')).encode()),
        ("in.csv", ("a,b\n" + NUMBERS).encode().rstrip()),
        ("in.csv", ("\n\na,b\n\n" + NUMBERS.replace("\n", "\n\n")).encode()),
        ("in.csv.gz", gzip.compress(("a,b\n" + NUMBERS).encode())),
        ("in.csv.gz", gzip.compress(b"a,b\n0,x\n") + gzip.compress(NUMBERS.encode()[4:])),
        ("in.csv.zst", zstd(("\ufeffa,b\r\n" + NUMBERS).encode())),
        ("in.csv", gzip.compress(("a,b\n" + NUMBERS).encode())),
    ],
    ids=["crlf", "cr", "bom", "quoted", "no newline at the end", "empty lines", "gzip", "gzip of two", "zstd", "name"],
)
def test_differently_written_files_have_the_same_rows(tmp_path: Path, name: str, content: bytes) -> None:
    plain = run_without_beam(data(write(tmp_path / "plain", "a,b\n" + NUMBERS)), tmp_path / "1")
    result = run_without_beam(data(write(tmp_path / "odd", content, name)), tmp_path / "2")
    assert result.rows == plain.rows
    assert (result.manifest.rows, result.manifest.bad, result.passes) == (60, 0, 1)


def test_quoted_newlines_and_long_fields_are_ingested(tmp_path: Path) -> None:
    long = "lörem " * 1_000_000
    body = "".join(f'{row},"two\nlines, ""quoted"" {row}"\r\n' for row in range(50))
    path = write(tmp_path, f'\ufeffa,b\r\n{body}50,"{long}"')
    examples = ingest(data(path), tmp_path / "out")
    expected = [{"a": row, "b": f'two\nlines, "quoted" {row}'} for row in range(50)] + [{"a": 50, "b": long}]
    assert sorted(all_rows(examples), key=lambda row: row["a"]) == expected
    assert counts(examples)["read"] == 51


def test_compressed_and_plain_files_are_ingested_together(tmp_path: Path) -> None:
    lines = [f"{row},x\n" for row in range(90)]
    write(tmp_path, "a,b\n" + "".join(lines[:30]), "in/1.csv")
    write(tmp_path, gzip.compress(("a,b\n" + "".join(lines[30:60])).encode()), "in/2.csv")
    write(tmp_path, zstd(("a,b\n" + "".join(lines[60:])).encode()), "in/3.csv")
    examples = ingest(data(tmp_path / "in", label="b"), tmp_path / "out")
    assert sorted(row["a"] for row in all_rows(examples)) == list(range(90))
    with (tmp_path / "in" / "2.csv").open("r+b") as file:
        file.truncate(40)
    error = ingest_error(data(tmp_path / "in"), tmp_path / "2")
    assert error.headline.startswith(f"{tmp_path}/in/2.csv: the compressed data is damaged or cut off")


def test_single_column_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "a\n" + "".join(f"{row}\n" for row in range(40)) + '\n""\n')
    result = run_without_beam(data(path), tmp_path / "out")
    values = [row["a"] for split_rows in result.rows.values() for row in split_rows]
    # An empty line is skipped, whereas an empty field is a missing value.
    assert sorted(value for value in values if value is not None) == list(range(40))
    assert values.count(None) == 1


@pytest.mark.parametrize("content", [b"", b"\n\n", b"a,b\n", b"a,b\r\n\r\n", b"a,b", gzip.compress(b"a,b\n", mtime=0)])
def test_file_without_rows_is_rejected_by_name(tmp_path: Path, content: bytes) -> None:
    for number in range(3):
        write(tmp_path, "a,b\n" + NUMBERS, f"in/{number}.csv")
    path = write(tmp_path, content, "in/1.csv")
    with pytest.raises(ingest_runs.InputError, match="has no rows") as raised:
        run_without_beam(data(tmp_path / "in"), tmp_path / "out")
    assert raised.value.headline.startswith(f"{path} has no rows")


def test_worker_names_the_file_without_rows(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, "a,b\n" + NUMBERS, f"in/{number}.csv")
    path = write(tmp_path, "a,b\n", "in/1.csv")
    assert ingest_error(data(tmp_path / "in"), tmp_path / "out").headline.startswith(f"{path} has no rows")


def test_file_that_is_not_text_is_rejected_by_name(tmp_path: Path) -> None:
    write(tmp_path, "a,b\n" + NUMBERS, "in/0.csv")
    path = write(tmp_path, bz2.compress(b"a,b\n" + NUMBERS.encode()), "in/1.csv")
    with pytest.raises(ingest_runs.InputError) as raised:
        run_without_beam(data(tmp_path / "in"), tmp_path / "out")
    assert raised.value.headline.startswith(str(path))


@pytest.mark.extended
def test_many_small_files_are_written_to_few_shards(tmp_path: Path) -> None:
    for number in range(2_000):
        write(tmp_path, f"a,b\n{number},{number / 2}\n{number}\n", f"in/{number:04d}.csv")
    config = data(tmp_path / "in", **ANY)
    examples = ingest(config, tmp_path / "out")
    assert counts(examples) | {"train": 0, "eval": 0} == {
        "read": 4_000, "quarantined": 2_000, "left_out": 0, "train": 0, "eval": 0
    }  # fmt: skip
    assert sorted(row["a"] for row in all_rows(examples)) == list(range(2_000))
    bad = bad_rows(examples)
    assert [bad_row["file"] for bad_row in bad] == [f"{number:04d}.csv" for number in range(2_000)]
    assert {bad_row["row"] for bad_row in bad} == {3}
    # The number of shards depends on the number of workers, not on the number of files.
    assert len(list((tmp_path / "out").rglob("*.gz"))) < 20


@pytest.fixture
def huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    """Return a file of about 12 ranges, with quoted line breaks and some bad rows."""
    monkeypatch.setattr(csv_reader, "_RANGE_BYTES", 3_000)
    lines = []
    for row in range(1_500):
        if row % 500 == 100:
            lines.append(f"{row}\n")
        elif row % 500 == 200:
            lines.append(f'x{row},"many\nlines {row}",1\n')
        else:
            lines.append(f'{row},"many\n""lines"", {row % 7}",{row / 8}\n')
    path = write(tmp_path, 'a,"b\nc",d\n' + "".join(lines))
    return data(path, types={"a": "int"}, **ANY)


@pytest.mark.extended
def test_examples_of_a_huge_file_do_not_depend_on_its_ranges(
    huge: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = ingest(huge, tmp_path / "1", beam=TWO_WORKERS)
    assert counts(shared)["read"] == 1_500
    monkeypatch.setattr(csv_reader, "_RANGE_BYTES", 1 << 20)
    alone = ingest(huge, tmp_path / "2")
    assert by_split(shared) == by_split(alone)
    assert counts(shared) == counts(alone)
    assert bad_rows(shared) == bad_rows(alone)
    # Rows are numbered, not lines: the header counts as its two lines, but every row counts as one although it
    # spans two lines. So row i has the number i + 3.
    positions = [bad["row"] for bad in bad_rows(alone)]
    assert positions == [row + 3 for row in range(1_500) if row % 500 in (100, 200)]


@pytest.mark.extended
def test_splits_do_not_depend_on_the_number_of_workers(huge: DataConfig, tmp_path: Path) -> None:
    one_worker, *other_results = (run_without_beam(huge, tmp_path / str(workers), workers) for workers in (1, 3, 50))
    for result in other_results:
        assert {split: sorted(map(repr, rows)) for split, rows in result.rows.items()} == {
            split: sorted(map(repr, rows)) for split, rows in one_worker.rows.items()
        }
        assert result.bad == one_worker.bad
        assert (result.manifest.rows, result.manifest.kinds) == (one_worker.manifest.rows, one_worker.manifest.kinds)


BAD = "a,b,c\n1,x,y\n2\n" + '3,"2,5",z\n4,5,6,7\nn,1,y\n' + "".join(f"{row},1,y\n" for row in range(5, 45))


def test_bad_rows_are_quarantined_with_position_reason_and_content(tmp_path: Path) -> None:
    write(tmp_path, BAD, "in/1.csv")
    write(tmp_path, b"a,b,c\n" + b"".join(b"%d,1,y\n" % row for row in range(20)) + b"7,\xe9t\xe9,z\n", "in/2.csv")
    config = data(tmp_path / "in", label="c", types={"a": "int", "b": "float"}, bad_rows={"max_fraction": 0.1})
    examples = ingest(config, tmp_path / "out")
    result = counts(examples)
    assert (result["read"], result["quarantined"], result["train"] + result["eval"]) == (66, 6, 60)
    assert ingest_runs.types(examples) == {"a": "int", "b": "float", "c": "bytes"}
    assert bad_rows(examples) == [
        {"file": "1.csv", "row": 2, "column": "b", "reason": "expected a float, received 'x'",
         "content": {"a": "1", "b": "x", "c": "y"}},
        {"file": "1.csv", "row": 3, "reason": "expected 3 fields, received 1", "content": "2"},
        {"file": "1.csv", "row": 4, "column": "b", "reason": "expected a float, received '2,5'",
         "content": {"a": "3", "b": "2,5", "c": "z"}},
        {"file": "1.csv", "row": 5, "reason": "expected 3 fields, received 4", "content": "4,5,6,7"},
        {"file": "1.csv", "row": 6, "column": "a", "reason": "expected an int64, received 'n'",
         "content": {"a": "n", "b": "1", "c": "y"}},
        {"file": "2.csv", "row": 22, "column": "b", "reason": r"expected a float, received '\xe9t\xe9'",
         "content": {"a": "7", "b": r"\xe9t\xe9", "c": "z"}},
    ]  # fmt: skip
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"Split-train", "Split-eval", "quarantine"}
    headline = f"{tmp_path}/in/1.csv, row 2: column b: expected a float, received 'x'"
    for bad_rows_, remedy in (
        ({"max_fraction": 0.09}, "max_fraction to 0.091 or more"),
        ({"action": "fail", "max_fraction": 1}, "data.types to fit"),
    ):
        error = ingest_error(
            config.model_copy(update={"bad_rows": type(config.bad_rows)(**bad_rows_)}), tmp_path / "no"
        )
        assert error.headline == headline
        assert error.details == (
            f"{tmp_path}/in/1.csv, row 3: expected 3 fields, received 1",
            f"{tmp_path}/in/1.csv, row 4: column b: expected a float, received '2,5'",
            f"{tmp_path}/in/1.csv, row 5: expected 3 fields, received 4",
            f"{tmp_path}/in/1.csv, row 6: column a: expected an int64, received 'n'",
            "and 1 more of 66 rows",
        )
        assert error.remedy.endswith(remedy)


@pytest.mark.parametrize("types", [{}, {"b": "int"}])
def test_too_large_value_is_quarantined(tmp_path: Path, types: dict[str, str]) -> None:
    long = "7" * 20_001
    path = write(tmp_path, f"a,b\n{NUMBERS.replace('x', '7')}60,{long}\n")
    result = run_without_beam(
        data(path, types=types, bad_rows={"max_fraction": 1, "max_cell_bytes": 20_000}), tmp_path / "out"
    )
    assert (result.manifest.rows, result.manifest.bad) == (61, 1)
    (bad,) = result.bad
    assert (bad["row"], bad["column"]) == (62, "b")
    assert bad["reason"] == "expected a value of at most 20,000 bytes, received 20,001"
    assert bad["content"] == {"a": "60", "b": long}
    # The quarantined value must not affect the type of the column.
    assert {row["b"] for part in result.rows.values() for row in part} == {7}


# Arrow emits an unraisable exception if it cannot decode a ragged row, but the row is still reported.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("encoding", "broken", "content"),
    [("utf-8", b"\xe9t\xe9", r"\xe9t\xe9"), ("cp1252", b"\x81!", r"\xff!")],
)
def test_undecodable_text_is_quarantined(tmp_path: Path, encoding: str, broken: bytes, content: str) -> None:
    rows = b"".join(b"%d,x\n" % row for row in range(30))
    path = write(tmp_path, b"a,b\n" + rows + b"30," + broken + b"\n31,y\n" + broken + b"\n")
    result = run_without_beam(data(path, csv={"encoding": encoding}, **ANY), tmp_path / "out")
    assert (result.manifest.rows, result.manifest.bad) == (33, 2)
    first, second = result.bad
    assert (first["row"], first["column"]) == (32, "b")
    assert first["reason"].startswith(f"expected {encoding} text, received '")
    assert first["content"] == {"a": "30", "b": content}
    assert (second["row"], second["reason"]) == (34, "expected 2 fields, received 1")


def test_text_in_other_encodings_is_converted_to_utf_8(tmp_path: Path) -> None:
    for encoding in ("cp1252", "utf-16", "utf-8"):
        path = write(tmp_path, ("a,b\n" + NUMBERS.replace("x", "é€")).encode(encoding), f"{encoding}.csv")
        result = run_without_beam(data(path, csv={"encoding": encoding}), tmp_path / encoding)
        assert {row["b"] for rows in result.rows.values() for row in rows} == {"é€"}
        assert result.manifest.rows == 60


@pytest.mark.parametrize(
    ("late", "kind", "first", "last"),
    [
        ("0.5", "float", 3.0, 0.5),
        pytest.param("nan", "float", 3.0, None, marks=pytest.mark.extended),
        pytest.param("no", "bytes", "3", "no", marks=pytest.mark.extended),
        pytest.param(str(2**63), "bytes", "3", str(2**63), marks=pytest.mark.extended),
        (str(-(2**63)), "int", 3, -(2**63)),
        ("2024-02-29", "bytes", "3", "2024-02-29"),
        pytest.param("true", "bytes", "3", "true", marks=pytest.mark.extended),
    ],
)
def test_late_value_changes_the_type_in_all_rows(
    tmp_path: Path, late: str, kind: str, first: object, last: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_reader, "_BLOCK", 1_000)
    result = run_without_beam(data(write_with_late_value(tmp_path, late)), tmp_path / "out", workers=3)
    rows = [row for split_rows in result.rows.values() for row in split_rows]
    assert (result.manifest.rows, result.passes) == (2_001, 1 if kind == "int" else 2)
    assert {name: executor._TYPES[Kind(kind)] for name, kind in result.manifest.kinds.items()} == {
        "a": kind,
        "b": "int",
    }
    assert {repr(row["a"]) for row in rows} == {repr(first), repr(last)}
    assert [repr(row["a"]) for row in rows if row["b"] == -1] == [repr(last)]


def test_second_pass_removes_the_output_of_the_first_pass(tmp_path: Path) -> None:
    examples = ingest(data(write_with_late_value(tmp_path, "0.5")), tmp_path / "out")
    result = all_rows(examples)
    assert counts(examples)["read"] == len(result) == 2_001
    assert ingest_runs.types(examples) == {"a": "float", "b": "int"}
    assert {row["a"] for row in result} == {3.0, 0.5}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"Split-train", "Split-eval"}


def write_with_late_value(folder: Path, late: str) -> Path:
    """Write files of integers with one other value; return their folder.

    The types are guessed from the first, the middle and the last file, so the value is in another file.
    """
    body = "".join(f"3,{row}\n" for row in range(400))
    for number in range(5):
        write(folder, f"a,b\n{body}" + f"{late},-1\n" * (number == 1), f"in/{number}.csv")
    return folder / "in"


def test_bad_rows_do_not_affect_column_types(tmp_path: Path) -> None:
    rows = "".join(f"{row},{row},1\n" for row in range(100, 140))
    path = write(tmp_path, "a,when,c\n" + rows + "x,soon,y\n" + rows)
    split = {"by": "time", "columns": "when", "train": 1, "eval": 1}
    result = run_without_beam(data(path, split=split, **ANY), tmp_path / "out")
    assert result.bad == [
        {
            "file": str(path),
            "row": 42,
            "column": "when",
            "reason": "expected a time (seconds since 1970, as data.split.unit says, or ISO 8601), received 'soon'",
            "content": {"a": "x", "when": "soon", "c": "y"},
        }
    ]
    assert set(result.manifest.kinds.values()) == {1}
    assert {type(value) for rows_ in result.rows.values() for row in rows_ for value in row.values()} == {int}


def test_configured_types_are_used_and_unselected_columns_are_ignored(tmp_path: Path) -> None:
    path = write(tmp_path, "zip,n,x\n" + "".join(f"0{row},{row % 2},\xe9\n" for row in range(50)) + "7,true,\n")
    config = data(path, types={"zip": "bytes", "n": "float"}, columns=["zip", "n"])
    result = run_without_beam(config, tmp_path / "out")
    rows = sorted((row for split_rows in result.rows.values() for row in split_rows), key=repr)
    assert rows == sorted([{"n": row % 2, "zip": f"0{row}"} for row in range(50)] + [{"n": 1, "zip": "7"}], key=repr)
    assert {type(row["n"]) for row in rows} == {float}
