"""Pseudo anomalies: rows whose columns are permuted independently, next to the rows themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from components.evaluator.plan import PSEUDO_LABEL
from components.evaluator.pseudo_anomalies import add_permuted_rows

ROWS = 500
TYPE = pa.large_list(pa.int64())


def test_values_of_permuted_columns_are_kept_but_rows_are_not() -> None:
    numbers = [[number] for number in range(ROWS)]
    columns = {name: pa.array(numbers, TYPE) for name in ("a", "b", "slice")}
    columns["gaps"] = pa.array([[number] if number % 3 else None for number in range(ROWS)], TYPE)
    batch = add_permuted_rows(pa.RecordBatch.from_pydict(columns), ["a", "b", "gaps"])
    assert batch.num_rows == 2 * ROWS
    assert batch.column(PSEUDO_LABEL).to_pylist() == [[0]] * ROWS + [[1]] * ROWS
    first, second = batch.slice(0, ROWS), batch.slice(ROWS)
    for name, column in columns.items():
        assert first.column(name).equals(column)
    assert second.column("slice").to_pylist() == numbers
    a, b = (np.array(second.column(name).to_pylist())[:, 0] for name in ("a", "b"))
    for values in (a, b):
        np.testing.assert_array_equal(np.sort(values), np.arange(ROWS))
        assert abs(np.corrcoef(values, np.arange(ROWS))[0, 1]) < 0.2
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.2
    assert second.column("gaps").null_count == batch.slice(0, ROWS).column("gaps").null_count
