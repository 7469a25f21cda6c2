"""Tests that columns of the signature `raw` are converted to the result of tf.io.parse_example for the same rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.results.request_schema import Column
from components.trainer.packed_columns import pack
from components.trainer.probe_rows import MISSING_INT
from components.trainer.raw_columns import as_parsed, join_columns, matrix_specs, pack_matrices

pytestmark = pytest.mark.both_lines

KINDS: dict[tf.DType, tuple[list[Any], Any]] = {
    tf.int64: ([7, None, 0, -3], MISSING_INT),
    tf.float32: ([0.5, None, 0.0, -3.0], math.nan),
    tf.string: ([b"a", None, b" ", b"\xff"], b""),
}
"""Values by dtype, and the value that stands for None in a request."""


@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
def test_missing_values_are_left_out(dtype: tf.DType) -> None:
    values, missing = KINDS[dtype]
    column = tf.constant([missing if value is None else value for value in values], dtype)
    parsed = as_parsed({"x": column}, {"x": tf.io.VarLenFeature(dtype)})["x"]
    expected = [[] if value is None else [value] for value in values]
    assert tf.RaggedTensor.from_sparse(tf.SparseTensor(*parsed)).to_list() == expected
    assert parsed.dense_shape.numpy().tolist() == [4, 1]


@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
def test_missing_events_are_dropped_and_the_rest_keep_their_order(dtype: tf.DType) -> None:
    values, missing = KINDS[dtype]
    column = tf.constant([[missing if value is None else value for value in values], [missing] * 4], dtype)
    parsed = as_parsed({"x": column}, {"x": tf.io.VarLenFeature(dtype)})["x"]
    assert tf.RaggedTensor.from_sparse(tf.SparseTensor(*parsed)).to_list() == [
        [value for value in values if value is not None],
        [],
    ]


def test_single_value_is_repeated_to_fill_the_shape_of_a_row() -> None:
    parsed = as_parsed({"x": tf.constant([1.0, 2.0])}, {"x": tf.io.FixedLenFeature([2], tf.float32)})["x"]
    np.testing.assert_array_equal(parsed, [[1, 1], [2, 2]])


def test_columns_are_converted_independently() -> None:
    columns = {
        f"{dtype.name}_{turn}": tf.roll(
            tf.constant([missing if value is None else value for value in values], dtype), turn, axis=0
        )
        for dtype, (values, missing) in KINDS.items()
        for turn in range(3)
    }
    columns["events"] = tf.constant([[1.0, math.nan], [math.nan] * 2, [2.0, 3.0], [4.0, math.nan]])
    columns["fixed"] = tf.constant([1, 2, 3, 4], tf.int64)
    specs = {name: tf.io.VarLenFeature(values.dtype) for name, values in columns.items()}
    specs["fixed"] = tf.io.FixedLenFeature([], tf.int64)
    together = as_parsed(columns, specs)
    assert list(together) == list(columns)
    for name, values in columns.items():
        alone = as_parsed({name: values}, specs)[name]
        for actual, expected in zip(
            *(tf.nest.flatten(column, expand_composites=True) for column in (together[name], alone)), strict=True
        ):
            np.testing.assert_array_equal(actual, expected, err_msg=name)


def test_matrices_are_packed_like_their_columns() -> None:
    names = [f"{dtype.name}_{turn}" for turn in range(2) for dtype in KINDS]
    columns = {}
    for name in names:
        kind, _, turn = name.partition("_")
        values, missing = KINDS[tf.as_dtype(kind)]
        present = [missing if value is None else value for value in values]
        columns[name] = tf.roll(tf.constant(present, kind), int(turn), axis=0)
    specs = {name: tf.io.VarLenFeature(values.dtype) for name, values in columns.items()}
    described = {name: Column(dtype=name.partition("_")[0]) for name in names}
    matrices = join_columns(columns, described)
    assert {dtype: matrix.shape.as_list() for dtype, matrix in matrices.items()} == {
        dtype.name: [4, 2] for dtype in KINDS
    }
    packed, expected = pack_matrices(matrices), pack(as_parsed(columns, specs), specs)
    assert packed.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_array_equal(packed[key], values, err_msg=key)


@pytest.mark.parametrize(
    ("columns", "most_values", "spec", "has_matrix"),
    [
        (100, 1, tf.io.VarLenFeature(tf.float32), True),
        (99, 1, tf.io.VarLenFeature(tf.float32), False),
        (100, None, tf.io.VarLenFeature(tf.float32), False),
        (100, 1, tf.io.FixedLenFeature([2], tf.float32), False),
    ],
)
def test_only_wide_models_with_single_values_have_the_matrix_signature(
    columns: int, most_values: int | None, spec: Any, has_matrix: bool
) -> None:
    names = [f"x{number}" for number in range(columns)]
    described = {name: Column(dtype="float32", most_values=1) for name in names}
    described["x7"] = Column(dtype="float32", most_values=most_values)
    specs = matrix_specs(dict.fromkeys(names, spec), described)
    assert specs == ({"float32": tf.TensorSpec([None, columns], tf.float32, "float32")} if has_matrix else None)
