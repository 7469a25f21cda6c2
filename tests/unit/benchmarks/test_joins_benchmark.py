"""Tests of the benchmark of joins: its tables have keys that match and keys that do not, and its check sums columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from benchmarks import joins
from benchmarks.joins_program import JOINS


def test_most_rows_match_and_keys_are_distinct(tmp_path: Path) -> None:
    joins.write_tables(tmp_path, 2_000, 500)
    tables = {path.stem: parquet.read_table(path) for path in tmp_path.iterdir()}
    assert tables["rows"].num_rows == 2_000
    for name in ("small", "large"):
        key = JOINS[name]["on"]
        keys = set(tables[name][key].to_pylist())
        assert len(keys) == tables[name].num_rows
        assert 0.9 < np.mean([value in keys for value in tables["rows"][key].to_pylist()]) < 1
    assert set(tables["rows"]["station"].to_pylist()) <= set(tables["past"]["station"].to_pylist())


def test_sum_of_a_column_of_rows_and_of_examples(tmp_path: Path) -> None:
    (tmp_path / "Split-train").mkdir()
    lists = pa.array([[1.5], None, [2.0]], pa.large_list(pa.float32()))
    parquet.write_table(pa.table({"size": lists}), tmp_path / "Split-train" / "examples.parquet")
    assert joins.sum_column(tmp_path, "size") == pytest.approx(3.5, abs=0)
    parquet.write_table(pa.table({"size": [1.0, None]}), tmp_path / "rows.parquet")
    assert joins.sum_column(tmp_path, "size") == pytest.approx(4.5, abs=0)
