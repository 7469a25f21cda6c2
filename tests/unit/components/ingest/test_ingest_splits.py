"""Rows are split by hash, group, time, column or file, equally for every format and number of workers."""

from __future__ import annotations

import csv
import datetime
import itertools
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from pyarrow import parquet as arrow_parquet

from components.ingest import csv_reader, parquet_reader
from tests.support.runs import ingest_runs
from tests.support.runs.ingest_runs import (
    TWO_WORKERS,
    Row,
    Shared,
    bad_rows,
    by_split,
    counts,
    data,
    ingest,
    ingest_error,
    run_without_beam,
)

ANY: dict[str, Any] = {"bad_rows": {"max_fraction": 1}}


def write(path: Path, header: str, rows: list[tuple[object, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


def values(result: dict[str, list[Row]], name: str) -> dict[str, list[Any]]:
    return {split: [row[name] for row in rows] for split, rows in result.items()}


def is_disjoint(result: dict[str, set[Any]]) -> bool:
    return len(set().union(*result.values())) == sum(map(len, result.values()))


@pytest.mark.parametrize("by", ["hash", pytest.param("group", marks=pytest.mark.extended)])
def test_rows_of_a_group_stay_together(tmp_path: Path, by: str) -> None:
    rows = [(row, f"user{row % 60}", row % 3) for row in range(900)]
    for number in range(6):
        write(tmp_path / "in" / f"{number}.csv", "a,user,day", rows[number::6])
    split = {"by": by, "columns": ["user", "day"], "train": 6, "eval": 2, "test": 2}
    examples = ingest(data(tmp_path / "in", split=split), tmp_path / "out", beam=TWO_WORKERS)
    assert counts(examples)["read"] == 900
    users = {name: {row["user"] for row in rows} for name, rows in by_split(examples).items()}
    assert is_disjoint(users)
    assert all(len(result) > 3 for result in users.values())


def test_rows_without_a_group_are_split_individually(tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", "a,user", [(row, "") for row in range(200)])
    result = run_without_beam(
        data(path, split={"by": "group", "columns": "user", "train": 1, "eval": 1}), tmp_path / "out"
    )
    assert min(map(len, result.rows.values())) > 50


def test_splits_get_their_shares_of_the_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", "a,b", [(row, row / 7) for row in range(4_000)])
    result = run_without_beam(data(path, split={"train": 7, "eval": 2, "test": 1}), tmp_path / "out")
    for split, share in (("train", 0.7), ("eval", 0.2), ("test", 0.1)):
        # Allow four standard deviations of the binomial distribution.
        assert abs(len(result.rows[split]) / 4_000 - share) < 4 * math.sqrt(share * (1 - share) / 4_000)


TIME = {"by": "time", "columns": "when", "train": 6, "eval": 2, "test": 2, "gap": "1m"}


def test_time_split_keeps_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reader, "_RANGE_BYTES", 4_000)
    # There is a row every 7 seconds, in random order. The times are floats, because columns with missing values often
    # are. They must not be compared as float32, the type in the examples, in which 18 successive times are equal.
    times = [1_700_000_000 + 7.0 * (row * 619 % 1_000) for row in range(1_000)]
    path = write(tmp_path / "in.csv", "a,when", [*enumerate(times), (1_000, ""), (1_001, "soon")])
    examples = ingest(data(path, split=TIME, **ANY), tmp_path / "out", beam=TWO_WORKERS)
    result = counts(examples)
    time_by_row = dict(enumerate(times))
    times_by_split = {name: [time_by_row[row["a"]] for row in rows] for name, rows in by_split(examples).items()}
    assert max(times_by_split["train"]) + 60 <= min(times_by_split["eval"])
    assert max(times_by_split["eval"]) + 60 <= min(times_by_split["test"])
    # Nine rows are left out at the start of each of the two later splits.
    assert {name: result[name] for name in ("train", "eval", "test", "left_out")} == {
        "train": 600, "eval": 191, "test": 191, "left_out": 18
    }  # fmt: skip
    assert (result["read"], result["quarantined"]) == (1_002, 2)
    message = "expected a time (seconds since 1970, as data.split.unit says, or ISO 8601), received"
    assert [(bad["row"], bad["column"], bad["reason"]) for bad in bad_rows(examples)] == [
        (1_002, "when", f"{message} nothing"),
        (1_003, "when", f"{message} 'soon'"),
    ]
    alone = ingest(data(path, split=TIME, **ANY), tmp_path / "alone")
    assert by_split(alone) == by_split(examples)


@pytest.mark.parametrize("form", ["csv", "seconds", "s", "ms", "us", "ns", "utc", "date", "float", "text"])
def test_time_split_accepts_every_type_of_time(tmp_path: Path, form: str) -> None:
    start = datetime.datetime(2024, 2, 1)
    times = [start + datetime.timedelta(days=row * 7 % 30) for row in range(30)]
    seconds = [(time - datetime.datetime(1970, 1, 1)).total_seconds() for time in times]
    typed = {
        "seconds": lambda: pa.array([int(second) for second in seconds]),
        "float": lambda: pa.array(seconds),
        "utc": lambda: pa.array(times, pa.timestamp("us", "UTC")),
        "date": lambda: pa.array([time.date() for time in times]),
        "text": lambda: pa.array([time.isoformat() for time in times]),
    }
    path = tmp_path / f"in.{'csv' if form == 'csv' else 'parquet'}"
    if form == "csv":
        write(path, "a,when", [*enumerate(time.isoformat() for time in times)])
    else:
        column = typed[form]() if form in typed else pa.array(times, pa.timestamp(form))
        arrow_parquet.write_table(pa.table({"a": list(range(30)), "when": column}), path, version="2.6")
    result = run_without_beam(
        data(path, split={**TIME, "train": 2, "eval": 1, "test": None, "gap": "2d"}), tmp_path / "out"
    )
    days = {split: {row["a"] * 7 % 30 for row in rows} for split, rows in result.rows.items()}
    # A gap of two days leaves out two rows.
    assert days == {"train": set(range(20)), "eval": set(range(22, 30))}
    assert result.manifest.left_out == 2


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3_000), min_size=3, max_size=80),
    st.sampled_from([0, 1, 30, 500]),
    st.integers(1, 5),
)
def test_splits_by_time_do_not_overlap(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], gap: int, workers: int
) -> None:
    folder = tmp_path_factory.mktemp("times")
    for number in range(workers):
        rows = [(row, time, "x") for row, time in enumerate(times)][number::workers] or [(-1, times[0], "x")]
        write(folder / "in" / f"{number}.csv", "a,when,b", rows)
    split = {**TIME, "gap": gap}
    one_worker, several_workers = (
        run_without_beam(data(folder / "in", split=split), folder / str(at), at) for at in (1, workers + 1)
    )
    for result in (one_worker, several_workers):
        split_rows = [result.rows[split] for split in ("train", "eval", "test") if result.rows.get(split)]
        for older, newer in itertools.pairwise(split_rows):
            assert max(row["when"] for row in older) + gap <= min(row["when"] for row in newer)
    assert_same(one_worker, several_workers)


def assert_same(first: Shared, second: Shared) -> None:
    for split in {*first.rows, *second.rows}:
        assert sorted(map(message, first.rows.get(split, []))) == sorted(map(message, second.rows.get(split, [])))
    assert (first.manifest.rows, first.manifest.left_out) == (second.manifest.rows, second.manifest.left_out)


def message(row: Row) -> str:
    """Return a row as text in which integers and equal floats do not differ."""
    return repr(
        {
            name: int(value) if isinstance(value, float) and math.isfinite(value) and value % 1 == 0 else value
            for name, value in row.items()
        }
    )


def test_values_of_a_column_determine_the_split(tmp_path: Path) -> None:
    months = ["2024-01", "2024-02", "2024-03", "2024-04", ""]
    path = write(tmp_path / "in.csv", "a,month", [(row, months[row % 5]) for row in range(50)])
    split = {"by": "column", "columns": "month", "train": months[:2], "eval": months[2]}
    examples = ingest(data(path, split=split, **ANY), tmp_path / "out")
    assert values(by_split(examples), "month") == {
        "train": months[:2] * 10,
        "eval": ["2024-03"] * 10,
    }
    assert counts(examples)["quarantined"] == 20
    assert {bad["reason"].rpartition(", ")[2] for bad in bad_rows(examples)} == {
        "received '2024-04'", "received nothing"
    }  # fmt: skip
    error = ingest_error(data(path, split={**split, "train": "2024-01"}), tmp_path / "no")
    assert error.headline.startswith(f"{path}, row 3: column month: expected a value that data.split names (2024-01, ")


@pytest.mark.parametrize("written", ["csv", "parquet"])
def test_split_by_a_numeric_column_survives_a_second_pass(
    tmp_path: Path, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_reader, "_BLOCK", 100)
    fold = [row % 3 for row in range(90)]
    # The last value of `a` is not an integer, which requires a second pass.
    a = [str(row) for row in range(89)] + ["x"]
    if written == "csv":
        path = write(tmp_path / "in.csv", "a,fold", list(zip(a, fold, strict=True)))
    else:
        path = tmp_path / "in.parquet"
        arrow_parquet.write_table(pa.table({"a": a, "fold": pa.array(fold, pa.float64())}), path)
    split = {"by": "column", "columns": "fold", "train": ["0", "1"], "eval": "2"}
    result = run_without_beam(data(path, split=split), tmp_path / "out", workers=2)
    assert {name: set(folds) for name, folds in values(result.rows, "fold").items()} == {
        "train": {0, 1},
        "eval": {2},
    }


def test_files_determine_the_split(tmp_path: Path) -> None:
    for number, folder in enumerate(["train/1", "train/2", "held", "out"]):
        write(tmp_path / "in" / folder / "rows.csv", "a,b", [(number, row) for row in range(5)])
    split = {"by": "files", "train": "train/*/*.csv", "eval": ["held/*.csv"], "test": "out/rows.csv"}
    examples = ingest(data(tmp_path / "in", split=split), tmp_path / "out")
    assert values(by_split(examples), "a") == {"train": [0] * 5 + [1] * 5, "eval": [2] * 5, "test": [3] * 5}
    # The splits must be the same after a second pass.
    write(tmp_path / "in" / "out" / "rows.csv", "a,b", [(3, "late")] * 5)
    examples = ingest(data(tmp_path / "in", split=split), tmp_path / "again")
    assert {name: set(result) for name, result in values(by_split(examples), "a").items()} == {
        "train": {0, 1}, "eval": {2}, "test": {3}
    }  # fmt: skip


def test_spans_are_read_and_recorded(tmp_path: Path) -> None:
    for name, value in (("1/v1", 11), ("2/v1", 21), ("2/v3", 23), ("3/v1", 31), ("5/v2", 52)):
        write(tmp_path / "in" / name / "rows.csv", "a,b", [(value, row) for row in range(20)])
    path = tmp_path / "in" / "{SPAN}" / "v{VERSION}" / "*.csv"
    for number, (requested, expected_values, span, version) in enumerate(
        [(None, {52}, 5, 2), ({"latest": 3}, {31, 52}, 5, 2), ({"start": 1, "end": 2}, {11, 23}, 2, 3)]
    ):
        config = data(path, **({"spans": requested} if requested else {}))
        examples = ingest(config, tmp_path / str(number))
        assert set().union(*values(by_split(examples), "a").values()) == expected_values
        assert counts(examples)["read"] == 20 * len(expected_values)
        assert examples.get_int_custom_property("span") == span
        assert examples.get_int_custom_property("version") == version


def test_dates_can_be_spans_of_predefined_splits(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        for kind in ("old", "new"):
            write(tmp_path / "in" / f"2024-03-0{day}" / f"{kind}.csv", "a,kind", [(day, kind)] * 4)
    split = {"by": "files", "train": "old.csv", "eval": "new.csv"}
    config = data(tmp_path / "in" / "{YYYY}-{MM}-{DD}", split=split, spans={"latest": 2})
    examples = ingest(config, tmp_path / "out")
    assert by_split(examples) == {
        "train": [{"a": day, "kind": "old"} for day in (2, 3) for _ in range(4)],
        "eval": [{"a": day, "kind": "new"} for day in (2, 3) for _ in range(4)],
    }
    assert examples.get_int_custom_property("span") == (datetime.date(2024, 3, 3) - datetime.date(1970, 1, 1)).days


_words = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0\r"), min_size=1, max_size=6)
_floats = st.floats(-(2.0**52), 2.0**52, allow_nan=False)
_dates = st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1))
_kinds: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.float64(), _floats),
    (pa.float32(), st.floats(-1e6, 1e6, width=32)),
    (pa.string(), _words.map("v".__add__)),
    (pa.date32(), _dates),
    (pa.timestamp("us"), st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))),
]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table with missing values that CSV can represent: text is neither a number nor empty."""
    column_kinds = draw(st.lists(st.sampled_from(_kinds), min_size=2, max_size=4))
    height = draw(st.integers(1, 40))
    columns = {}
    for number, (type_, result) in enumerate(column_kinds):
        values = draw(st.lists(st.one_of(result, st.none()), min_size=height, max_size=height))
        columns[f"c{number}"] = pa.array(values, type_)
    return pa.table(columns)


def write_both(table: pa.Table, folder: Path) -> tuple[Path, Path]:
    """Write the table as two CSV files and as a Parquet file in reverse order; return their paths."""
    for number, part in enumerate([table.slice(0, len(table) // 2 + 1), table.slice(len(table) // 2 + 1)]):
        if len(part):
            (folder / "csv").mkdir(parents=True, exist_ok=True)
            arrow_csv.write_csv(part, folder / "csv" / f"{number}.csv")
    backwards = table.take(pa.array(range(len(table))[::-1]))
    arrow_parquet.write_table(backwards, folder / "in.parquet", row_group_size=7)
    return folder / "csv", folder / "in.parquet"


@settings(max_examples=80, deadline=None)
@given(tables(), st.integers(1, 3))
@pytest.mark.slow
def test_rows_and_splits_do_not_depend_on_the_format(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, workers: int
) -> None:
    folder = tmp_path_factory.mktemp("formats")
    lines, packed = write_both(table, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_reader, "_RANGE_BYTES", 1)
        patch.setattr(csv_reader, "_RANGE_BYTES", 64)
        from_csv = run_without_beam(data(lines, label="c0"), folder / "1", workers)
        from_parquet = run_without_beam(data(packed, label="c0"), folder / "2", workers)
    assert from_csv.manifest.rows == len(table)
    assert_same(from_csv, from_parquet)


@settings(max_examples=6, deadline=None)
@given(tables())
@pytest.mark.slow
def test_rows_and_splits_do_not_depend_on_the_format_on_beam(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table
) -> None:
    folder = tmp_path_factory.mktemp("formats")
    # Repeat the rows so that both splits contain some.
    wide = pa.concat_tables(
        [table.append_column("copy", pa.array([copy] * len(table), pa.int64())) for copy in range(40)]
    )
    lines, packed = write_both(wide, folder)
    from_csv, from_parquet = (ingest(data(path, label="c0"), folder / path.stem) for path in (lines, packed))
    result, expected = by_split(from_csv), by_split(from_parquet)
    for split in ("train", "eval"):
        assert sorted(map(message, result[split])) == sorted(map(message, expected[split]))
    assert counts(from_csv) == counts(from_parquet)
    assert ingest_runs.types(from_csv).keys() == ingest_runs.types(from_parquet).keys()


def test_copies_of_a_row_are_in_one_split(tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", "a,b", [(row % 50, row % 50 / 3) for row in range(500)])
    result: dict[str, set[Any]] = defaultdict(set)
    for split, rows in run_without_beam(data(path), tmp_path / "out").rows.items():
        result[split] |= {row["a"] for row in rows}
    assert is_disjoint(result)
