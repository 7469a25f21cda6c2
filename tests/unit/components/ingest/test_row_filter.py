"""`data.where` selects the rows that SQLite selects, whatever the format, and before rows are divided into splits."""

from __future__ import annotations

import csv
import random
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from components.ingest.row_filter import RowFilter
from tests.support.runs.ingest_runs import TWO_WORKERS, bad_rows, by_split, counts, data, ingest, ingest_error

TYPES = {"fare": pa.float64(), "payment": pa.string(), "riders": pa.int64(), "tips": pa.float32()}
CONDITIONS = (
    "fare > 10",
    "fare > 10 and payment in ('Cash', 'Credit Card')",
    "payment not in ('Cash')",
    "payment != 'Cash' or fare < 3",
    "not (payment == 'Cash' and riders >= 2)",
    "not riders",
    "riders",
    "riders in (1, 3) or riders == 9007199254740993",
    "riders > 9007199254740992",
    "tips / fare >= 0.1",
    "tips * 2 - fare < -3.5",
    "-riders <= -2",
    "tips == 0.7",
    "payment >= 'Cb'",
    "fare < riders or tips > fare",
)


def make_rows(count: int) -> list[tuple[Any, ...]]:
    """Return random rows of all columns, a sixth of the values missing."""
    source = random.Random(0)  # noqa: S311

    def maybe(value: object) -> object:
        return value if source.random() > 1 / 6 else None

    return [
        (
            maybe(source.choice([0.0, 2.5, 3.0, 10.0, 10.5, 44.25])),
            maybe(source.choice(["Cash", "Credit Card", "Cb", "", "Größe"]) or None),
            maybe(source.choice([0, 1, 2, 3, 2**53, 2**53 + 1])),
            maybe(source.choice([0.0, 0.25, 0.7, 1.05, 5.0])),
        )
        for _ in range(count)
    ]


def select_by_sqlite(rows: list[tuple[Any, ...]], condition: str) -> list[int]:
    """Return the indices of the rows that SQLite selects; all its columns in divisions are floats."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("create table rows (fare real, payment text, riders integer, tips real)")
        connection.executemany("insert into rows values (?, ?, ?, ?)", rows)
        found = connection.execute(f"select rowid - 1 from rows where {condition.replace('==', '=')}")  # noqa: S608
        return [index for (index,) in found]


def to_text(value: object) -> bytes | None:
    return None if value is None else str(value).encode()


@pytest.mark.parametrize("is_text", [True, False], ids=["text", "typed"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_are_those_that_sqlite_selects(condition: str, is_text: bool) -> None:
    rows = make_rows(300)
    columns = list(zip(*rows, strict=True))
    arrays = [
        pa.array(map(to_text, column), pa.binary()) if is_text else pa.array(column, TYPES[name])
        for name, column in zip(TYPES, columns, strict=True)
    ]
    selected, bad = RowFilter(condition).select(pa.RecordBatch.from_arrays(arrays, list(TYPES)))
    expected = select_by_sqlite(rows, condition)
    assert np.flatnonzero(selected).tolist() == expected
    assert 0 < len(expected) < len(rows)
    assert not bad


def test_numbers_of_every_spelling_and_type_are_compared() -> None:
    texts = pa.array([b" 7", b"+7", b"7e0", b"true", b"nan", b"1_0", b"many"])
    selected, bad = RowFilter("x >= 1").select(pa.RecordBatch.from_arrays([texts], ["x"]))
    assert selected.tolist() == [True] * 4 + [False] * 3
    assert bad == {
        5: ("x", "expected a number, which data.where needs, received '1_0'"),
        6: ("x", "expected a number, which data.where needs, received 'many'"),
    }
    for column in (
        pa.array([[1], [0], [1, 2], None]),
        pa.array([True, False, None, None]),
        pa.array(["1", "0", None, None]).dictionary_encode(),
        pa.array([1, 0, 2**64 - 1, None], pa.uint64()),
    ):
        selected, _ = RowFilter("x == 1 or missing > 0").select(pa.RecordBatch.from_arrays([column], ["x"]))
        assert selected.tolist() == [True, False, False, False]
    comma = RowFilter("x > 1234", decimal=",")
    column = pa.array([b"1.234,5", b"1,5", b"1.234"])
    assert comma.select(pa.RecordBatch.from_arrays([column], ["x"]))[0].tolist() == [True, False, False]


def write_csv(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(TYPES), *(["" if value is None else value for value in row] for row in rows)])
    return path


@pytest.mark.parametrize("format_", ["csv", pytest.param("parquet", marks=pytest.mark.extended)])
def test_other_rows_are_counted_and_left_out(tmp_path: Path, format_: str) -> None:
    rows = make_rows(500)
    if format_ == "csv":
        path = write_csv(tmp_path / "rows.csv", rows)
    else:
        path = tmp_path / "rows.parquet"
        arrays = [pa.array(column, TYPES[name]) for name, column in zip(TYPES, zip(*rows, strict=True), strict=True)]
        parquet.write_table(pa.Table.from_arrays(arrays, list(TYPES)), path)
    condition = "fare > 3 and payment in ('Cash', 'Cb')"
    examples = ingest(data(path, where=condition), tmp_path / "out", beam=TWO_WORKERS)
    expected = [rows[index] for index in select_by_sqlite(rows, condition)]
    written = [row for part in by_split(examples).values() for row in part]
    assert len(written) == len(expected)
    assert sorted(row["fare"] for row in written) == sorted(row[0] for row in expected)
    found = counts(examples)
    assert (found["read"], found["unselected"]) == (500, 500 - len(expected))


def test_bad_rows_are_found_among_the_selected_rows_only(tmp_path: Path) -> None:
    """Two rows lack a valid fare, which the type requires. The condition leaves out the first of them."""
    path = tmp_path / "rows.csv"
    lines = ["kind,fare,n", *(f"a,{number},1" for number in range(20)), "b,oops,1", "a,oops,1", "a,1,oops"]
    path.write_text("\n".join(lines))
    section = {"types": {"fare": "float"}, "bad_rows": {"max_fraction": 0.5}}
    examples = ingest(data(path, where="kind == 'a' and n == 1", **section), tmp_path / "out")
    assert [(row["row"], row["column"]) for row in bad_rows(examples)] == [(23, "fare"), (24, "n")]
    found = counts(examples)
    assert (found["read"], found["unselected"], found["quarantined"]) == (23, 1, 2)


def test_shares_of_a_split_by_time_are_shares_of_the_selected_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["time,keep", *(f"{time},{int(time < 100 or time % 10 == 0)}" for time in range(1000))]))
    split = {"by": "time", "columns": ["time"], "train": 1, "eval": 1}
    result = by_split(ingest(data(path, where="keep == 1", split=split), tmp_path / "out"))
    assert [len(rows) for rows in result.values()] == [95, 95]
    assert max(row["time"] for row in result["train"]) == 94


def test_condition_that_no_row_fulfils_is_an_error(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "rows.csv", make_rows(50))
    error = ingest_error(data(path, where="fare > 1000"), tmp_path / "out")
    assert "data.where: expected rows that fulfil 'fare > 1000', received none of 50 rows" in str(error)
