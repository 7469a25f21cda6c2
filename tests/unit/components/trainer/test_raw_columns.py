"""Columns of the signature `raw` become what tf.io.parse_example returns for the same rows."""

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
"""Dtype → values, and what stands for None."""


@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
def test_missing_values_are_left_out(dtype: tf.DType) -> None:
    values, missing = KINDS[dtype]
    given = tf.constant([missing if each is None else each for each in values], dtype)
    parsed = as_parsed({"x": given}, {"x": tf.io.VarLenFeature(dtype)})["x"]
    expected = [[] if each is None else [each] for each in values]
    assert tf.RaggedTensor.from_sparse(tf.SparseTensor(*parsed)).to_list() == expected
    assert parsed.dense_shape.numpy().tolist() == [4, 1]


@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
def test_events_keep_their_order_without_missing_ones(dtype: tf.DType) -> None:
    values, missing = KINDS[dtype]
    given = tf.constant([[missing if each is None else each for each in values], [missing] * 4], dtype)
    parsed = as_parsed({"x": given}, {"x": tf.io.VarLenFeature(dtype)})["x"]
    assert tf.RaggedTensor.from_sparse(tf.SparseTensor(*parsed)).to_list() == [
        [each for each in values if each is not None],
        [],
    ]


def test_one_value_is_repeated_where_a_row_has_a_shape() -> None:
    parsed = as_parsed({"x": tf.constant([1.0, 2.0])}, {"x": tf.io.FixedLenFeature([2], tf.float32)})["x"]
    np.testing.assert_array_equal(parsed, [[1, 1], [2, 2]])


def test_columns_are_converted_as_if_each_were_alone() -> None:
    columns = {
        f"{dtype.name}_{turn}": tf.roll(
            tf.constant([missing if each is None else each for each in values], dtype), turn, axis=0
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
        for one, other in zip(
            *(tf.nest.flatten(each, expand_composites=True) for each in (together[name], alone)), strict=True
        ):
            np.testing.assert_array_equal(one, other, err_msg=name)


def test_matrices_are_packed_as_their_columns_are() -> None:
    names = [f"{dtype.name}_{turn}" for turn in range(2) for dtype in KINDS]
    columns = {}
    for name in names:
        kind, _, turn = name.partition("_")
        values, missing = KINDS[tf.as_dtype(kind)]
        present = [missing if each is None else each for each in values]
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
def test_only_wide_models_with_single_values_have_the_signature(
    columns: int, most_values: int | None, spec: Any, has_matrix: bool
) -> None:
    names = [f"x{number}" for number in range(columns)]
    described = {name: Column(dtype="float32", most_values=1) for name in names}
    described["x7"] = Column(dtype="float32", most_values=most_values)
    specs = matrix_specs(dict.fromkeys(names, spec), described)
    assert specs == ({"float32": tf.TensorSpec([None, columns], tf.float32, "float32")} if has_matrix else None)
