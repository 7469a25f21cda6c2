"""Rows of a BigQuery query are ingested. A fake source replaces BigQuery and yields rows as Beam's reader does."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from components.ingest import bigquery_reader
from components.ingest.config import DataConfig
from tests.support.runs import ingest_runs
from tests.support.runs.ingest_runs import TWO_WORKERS, all_rows, bad_rows, by_split, counts, ingest, ingest_error

UTC = datetime.timezone.utc
Queries = list[dict[str, Any]]
Answer = Callable[[list[dict[str, Any]]], Queries]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Return a function that replaces Beam's reader: it sets the rows, and returns the list of received queries."""

    def give(rows: list[dict[str, Any]]) -> Queries:
        queries: Queries = []

        class Read(beam.PTransform):
            def __init__(self, **options: Any) -> None:
                super().__init__()
                queries.append(options)

            def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
                return pipeline | beam.Create(rows)

        monkeypatch.setattr(bigquery_reader, "ReadFromBigQuery", Read)
        return queries

    return give


def query(text: str = "SELECT *", **more: Any) -> DataConfig:
    return DataConfig(**{"bigquery": {"query": text}, "label": "a", "bad_rows": {"max_fraction": 0}, **more})


def test_rows_of_a_query_become_examples(answer: Answer, tmp_path: Path) -> None:
    rows = [
        {
            "a": row,
            "ratio": None if row % 3 else row / 8,
            "price": decimal.Decimal(row) / 4 + decimal.Decimal("1e-9"),
            "day": datetime.date(2024, 2, 1 + row % 28),
            "at": datetime.datetime(2024, 2, 1, row % 24, tzinfo=UTC),
            "clock": datetime.time(12, 30),
            "word": "é" if row % 2 else None,
            "raw": b"\xff",
            "flag": row % 2 == 0,
            "tags": ["x", "y"] if row % 2 else [],
            "nothing": None,
        }
        for row in range(50)
    ]
    queries = answer(rows)
    config = query(bigquery={"query": "SELECT 1", "project": "p", "temp_location": "gs://b/t"})
    examples = ingest(config, tmp_path / "out")
    assert queries == [{"query": "SELECT 1", "use_standard_sql": True, "project": "p", "gcs_location": "gs://b/t"}]
    assert counts(examples)["read"] == 50
    result = sorted(all_rows(examples), key=lambda row: row["a"])
    assert [row["a"] for row in result] == list(range(50))
    assert result[5] == {
        "a": 5,
        "at": "2024-02-01 05:00:00.000000Z",
        "clock": "12:30:00.000000",
        "day": "2024-02-06",
        "flag": 0,
        "nothing": None,
        "price": 1.25,
        "ratio": None,
        "raw": b"\xff",
        "tags": ["x", "y"],
        "word": "é",
    }
    assert result[6]["ratio"] == 0.75
    assert result[6]["word"] is None
    assert ingest_runs.types(examples) == {
        **dict.fromkeys(["a", "flag"], "int"),
        **dict.fromkeys(["price", "ratio"], "float"),
        **dict.fromkeys(["at", "clock", "day", "raw", "tags", "word"], "bytes"),
        "nothing": "missing",
    }


def test_selected_columns_are_read_and_split_by_time(answer: Answer, tmp_path: Path) -> None:
    start = datetime.datetime(2024, 2, 1, tzinfo=UTC)
    answer([{"a": row, "at": start + datetime.timedelta(hours=row), "b": {"x": 1}} for row in range(40)])
    split = {"by": "time", "columns": "at", "train": 3, "eval": 1, "gap": "2h"}
    examples = ingest(query(columns=["a", "at"], split=split), tmp_path / "out", beam=TWO_WORKERS)
    items = {name: sorted(row["a"] for row in rows) for name, rows in by_split(examples).items()}
    assert items == {"train": list(range(30)), "eval": list(range(32, 40))}
    assert counts(examples)["left_out"] == 2


def test_types_that_differ_between_batches_are_widened(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigquery_reader, "_ROWS", 8)
    answer([{"a": row if row < 40 else row / 2, "b": None if row < 20 else "x", "c": row} for row in range(80)])
    examples = ingest(query(), tmp_path / "out", beam=TWO_WORKERS)
    assert ingest_runs.types(examples) == {"a": "float", "b": "bytes", "c": "int"}
    assert counts(examples)["read"] == 80
    assert {type(row["a"]) for row in all_rows(examples)} == {float}


def test_bad_rows_of_all_batches_are_quarantined(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigquery_reader, "_ROWS", 4)
    answer([{"a": "x" if row % 10 == 0 else str(row), "b": row} for row in range(100)])
    config = query(types={"a": "int"}, bad_rows={"max_fraction": 1})
    examples = ingest(config, tmp_path / "out", beam=TWO_WORKERS)
    bad = bad_rows(examples)
    assert sorted(int(bad_row["content"]["b"]) for bad_row in bad) == list(range(0, 100, 10))
    assert {(bad_row["file"], bad_row["column"], bad_row["reason"]) for bad_row in bad} == {
        ("the query's result", "a", "expected an int64, received 'x'")
    }
    assert counts(examples)["quarantined"] == 10


def test_column_of_records_is_rejected(answer: Answer, tmp_path: Path) -> None:
    answer([{"a": 1, "b": {"x": 1}}])
    error = ingest_error(query(), tmp_path / "out")
    assert error.headline == (
        "the column b of the query is a record (struct<x: int64>): expected values, or arrays of them"
    )


def test_query_without_rows_is_rejected(answer: Answer, tmp_path: Path) -> None:
    answer([])
    assert ingest_error(query(), tmp_path / "out").headline == "the split train got none of the 0 rows"


def test_missing_column_is_rejected(answer: Answer, tmp_path: Path) -> None:
    answer([{"a": row, "user": row} for row in range(40)])
    split = {"by": "group", "columns": "usr", "train": 1, "eval": 1}
    for number, config in enumerate([query(columns=["a", "usr"]), query(split=split), query(types={"usr": "int"})]):
        error = ingest_error(config, tmp_path / str(number))
        assert "there is no column 'usr'; did you mean 'user'?" in error.headline


def test_span_is_inserted_into_the_query(answer: Answer, tmp_path: Path) -> None:
    queries = answer([{"a": row} for row in range(40)])
    text = "SELECT a FROM t WHERE day = @span_yyyymmdd_utc AND at < @span_end_timestamp"
    examples = ingest(query(text, spans={"start": 19_754, "end": 19_754}), tmp_path / "out")
    (query_,) = (options["query"] for options in queries)
    assert query_.startswith("SELECT a FROM t WHERE day = '20240201' AND at < ")
    assert "@" not in query_
    assert examples.get_int_custom_property("span") == 19_754
