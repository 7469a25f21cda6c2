"""Every row has one non-negative weight; the error counts the rows that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.base.errors import InputError
from components.data.weights import weights_of


def batch(values: list[Any], kind: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.large_list(kind))], ["w"])


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32()])
def test_weights_are_numbers(kind: Any) -> None:
    rows = batch([[1], [0], [3]], kind)
    np.testing.assert_array_equal(weights_of(rows, "w"), [1.0, 0.0, 3.0])
    np.testing.assert_array_equal(weights_of(rows.slice(1), "w"), [0.0, 3.0])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (batch([[1.0], [-1.0], [-2.0]], pa.float32()), "received a negative number in 2 rows of a batch of 3"),
        (batch([[1.0], [float("nan")]], pa.float32()), "received NaN or an infinite number in 1 rows of a batch of 2"),
        (batch([[1], None, []], pa.int64()), "received no value, or several values, in 2 rows of a batch of 3"),
        (batch([[1, 2]], pa.int64()), "received no value, or several values, in 1 rows"),
        (batch([[b"1"]], pa.large_binary()), "received text in 1 rows"),
        (pa.RecordBatch.from_arrays([pa.nulls(2)], ["w"]), "received no value in 2 rows"),
        (pa.RecordBatch.from_arrays([pa.array([[1]])], ["other"]), "received no value in 1 rows"),
    ],
)
def test_row_without_a_valid_weight_is_rejected(rows: pa.RecordBatch, message: str) -> None:
    with pytest.raises(InputError, match=f"data.weight: expected a non-negative number in each row of 'w', {message}"):
        weights_of(rows, "w")
