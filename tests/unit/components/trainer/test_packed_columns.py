"""Tests that packing and unpacking preserves columns, in graphs whose size is independent of the column count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.trainer import packed_columns
from components.trainer.packed_columns import ParsedColumns
from components.trainer.raw_columns import as_parsed, raw_specs

pytestmark = pytest.mark.both_lines

SPECS: dict[str, Any] = {
    "fare": tf.io.VarLenFeature(tf.float32),
    "tags": tf.io.VarLenFeature(tf.string),
    "pair": tf.io.FixedLenFeature([2], tf.float32),
    "none": tf.io.VarLenFeature(tf.float32),
    "hour": tf.io.FixedLenFeature([], tf.int64),
    "other_pair": tf.io.FixedLenFeature([2], tf.float32),
    "many": tf.io.VarLenFeature(tf.float32),
}


def sparse(rows: list[list[Any]], dtype: tf.DType) -> tf.SparseTensor:
    return tf.ragged.constant(rows, dtype).to_sparse()


def columns() -> ParsedColumns:
    return {
        "fare": sparse([[1.5], [], [2.5]], tf.float32),
        "tags": sparse([[b"a", b"b"], [b""], []], tf.string),
        "pair": tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        "none": tf.SparseTensor(tf.zeros([0, 2], tf.int64), tf.zeros([0]), [3, 0]),
        "hour": tf.constant([1, 2, 3], tf.int64),
        "other_pair": tf.constant([[7.0, 8.0]] * 3),
        "many": sparse([[1.0], [2.0, 3.0, 4.0], [5.0]], tf.float32),
    }


def test_unpacking_returns_the_columns_that_were_packed() -> None:
    specs = packed_columns.describe_packed(SPECS)
    unpack = tf.function(lambda packed: packed_columns.unpack(packed, SPECS), [specs], autograph=False)
    packed = packed_columns.pack(columns(), SPECS)
    assert packed.keys() == specs.keys()
    unpacked = unpack(packed)
    assert unpacked.keys() == SPECS.keys()
    for name, expected in columns().items():
        parts = [tf.nest.flatten(column, expand_composites=True) for column in (unpacked[name], expected)]
        for actual, expected_part in zip(*parts, strict=True):
            assert actual.dtype == expected_part.dtype
            np.testing.assert_array_equal(actual, expected_part, err_msg=name)


@pytest.mark.parametrize("rows", [0, 2])
def test_packing_works_with_few_rows_and_with_none(rows: int) -> None:
    specs = {name: spec for name, spec in SPECS.items() if name in ("fare", "none", "hour")}
    hour = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
    row = tf.train.Example(features=tf.train.Features(feature={"hour": hour})).SerializeToString()
    parsed = tf.io.parse_example(tf.constant([row] * rows, tf.string), specs)
    unpacked = packed_columns.unpack(packed_columns.pack(parsed, specs), specs)
    assert unpacked["fare"].dense_shape.numpy().tolist() == [rows, 0]
    assert unpacked["hour"].numpy().tolist() == [1] * rows


def test_number_of_nodes_does_not_depend_on_the_columns() -> None:
    def nodes(count: int) -> int:
        specs = {f"x{number}": tf.io.VarLenFeature(tf.float32) for number in range(count)}

        def compute(values: dict[str, tf.Tensor]) -> ParsedColumns:
            return packed_columns.unpack(packed_columns.pack(as_parsed(values, specs), specs), specs)

        function = tf.function(compute, [raw_specs(specs, ())], autograph=False).get_concrete_function()
        operations = function.graph.get_operations()
        # The inputs and outputs do grow: every column adds one placeholder and three identities.
        return len(operations) - sum(operation.type in ("Placeholder", "Identity") for operation in operations)

    assert nodes(40) == nodes(4)
