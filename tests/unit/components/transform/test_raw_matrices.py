"""Matrices of raw rows contain the same values as the SparseTensors of TFX's adapter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2

from components.features.column_group import Columns
from components.transform.raw_batches import RawBatches
from components.transform.raw_matrices import RawMatrices

_TYPES = {"i": pa.int64(), "f": pa.float32(), "t": pa.large_binary()}
_KINDS = {"i": schema_pb2.INT, "f": schema_pb2.FLOAT, "t": schema_pb2.BYTES}
_ROWS: dict[str, list[list[Any] | None]] = {
    "i1": [[2**53 + 1], None, [], [-(2**63)], [0], [5]],
    "i2": [[1], [2], [3], [4], [5], [6]],
    "f1": [[math.nan], [math.inf], [0.1], None, [-0.0], [3e38]],
    "f2": [None, None, None, None, None, None],
    "t1": [[b""], None, [b"a\0b"], [b""], ["é".encode()], [b"a\0b"]],
    "t2": [[b"x"], [b"x"], [b"x"], [b"x"], [b"y"], [b"x" * 300]],
}


def _read(columns: Columns) -> dict[str, list[tf.Tensor]]:
    """Read every column alone, and the columns of a dtype as a group."""
    values: dict[str, list[tf.Tensor]] = {}
    for name in _ROWS:
        column = columns[name]
        events = column.all_values()
        values[name] = [column.values, column.present, events.flat_values, events.row_lengths()]
    for kind in _TYPES:
        group = columns.group([name for name in reversed(_ROWS) if name.startswith(kind)])
        values[kind] = [group.values, group.present]
    return values


def _trace(function: Any, signature: Any) -> Any:
    return tf.function(function, signature, autograph=False)


def _create_batch(rows: dict[str, list[list[Any] | None]]) -> pa.RecordBatch:
    arrays = [pa.array(values, pa.large_list(_TYPES[name[0]])) for name, values in rows.items()]
    return pa.RecordBatch.from_arrays(arrays, list(rows))


@pytest.fixture(scope="module")
def batches() -> RawBatches:
    features = [schema_pb2.Feature(name=name, type=_KINDS[name[0]]) for name in _ROWS]
    return RawBatches(schema_pb2.Schema(feature=features), None)


@pytest.mark.both_lines
@pytest.mark.parametrize("rows", [slice(0, 6), pytest.param(slice(1, 4), marks=pytest.mark.extended), slice(5, 6)])
@pytest.mark.parametrize("lists", [(), ("i1", "t2"), tuple(_ROWS)])
def test_columns_equal_those_of_sparse_tensors(batches: RawBatches, lists: tuple[str, ...], rows: slice) -> None:
    batch = _create_batch(_ROWS).slice(rows.start, rows.stop - rows.start)
    matrices = RawMatrices(batches, _ROWS, lists)
    inputs = matrices.pack(batch)
    assert inputs is not None
    received = matrices.trace(_read, _trace)(*inputs)
    expected = _trace(lambda parsed: _read(Columns(parsed)), [dict(batches.specs)])(batches.tensors(batch))
    for name, tensors in expected.items():
        for value, other in zip(received[name], tensors, strict=True):
            np.testing.assert_array_equal(value.numpy(), other.numpy(), err_msg=name)


@pytest.mark.parametrize(("name", "values"), [("i2", [1, 2]), ("f1", [0.5, 0.5]), ("t1", [b"a", b""])])
def test_several_values_in_a_row_do_not_fit(batches: RawBatches, name: str, values: list[Any]) -> None:
    rows = {**_ROWS, name: [values, *_ROWS[name][1:]]}
    assert RawMatrices(batches, _ROWS, ()).pack(_create_batch(rows)) is None
    # As the column of a history, it remains a SparseTensor.
    inputs = RawMatrices(batches, _ROWS, (name,)).pack(_create_batch(rows))
    assert inputs is not None
    assert inputs[1][name].values.numpy()[:2].tolist() == values


def test_columns_that_are_not_read_count_as_missing(batches: RawBatches) -> None:
    matrices = RawMatrices(batches, {"i2"}, ())
    inputs = matrices.pack(_create_batch(_ROWS))
    assert inputs is not None
    read = matrices.trace(_read, _trace)(*inputs)
    assert read["i2"][0].numpy().tolist() == [1, 2, 3, 4, 5, 6]
    assert not any(read[name][1].numpy().any() for name in _ROWS if name != "i2")
