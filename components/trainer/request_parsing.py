"""Parsing of the tf.Examples of requests in the exported graph, which refuses invalid rows.

A server that does not read `request_schema`, such as TensorFlow Serving, relies on this check alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import tensorflow as tf

from components.results.request_schema import Column
from components.trainer.packed_columns import FeatureSpecs, ParsedColumns, SparseColumn


def parse_requests(serialized: tf.Tensor, specs: FeatureSpecs, columns: Mapping[str, Column]) -> ParsedColumns:
    """Parse tf.Examples as tf.io.parse_example does; add the check to the graph.

    The graph raises InvalidArgumentError if a row lacks a finite number or a text in a required column, or has more
    values in a column than the schema allows. The error names the column.

    Args:
      serialized: tf.Examples; string, shape [batch].
      specs: Column that the model reads → its tf.io.VarLenFeature or tf.io.FixedLenFeature.
      columns: Name → description of the column; columns without a description are not checked.

    Returns:
      Column → its tensor, of the type that its spec stands for.
    """
    checked = {name: column for name, column in columns.items() if isinstance(specs.get(name), tf.io.VarLenFeature)}
    required = [name for name, column in checked.items() if column.required and column.most_values == 1]
    fixed = {name: tf.io.FixedLenFeature([], specs[name].dtype) for name in required}
    parsed = _parse_examples(serialized, {**specs, **fixed})
    bounded = {name: most for name, column in checked.items() if name not in fixed and (most := column.most_values)}
    numbers = [name for name in required if specs[name].dtype.is_floating]
    with tf.control_dependencies([*_refuse_further_values(parsed, bounded), *_refuse_no_numbers(parsed, numbers)]):
        first = tf.stack([tf.range(tf.size(serialized, tf.int64)), tf.zeros_like(serialized, tf.int64)], axis=1)
        shape = tf.stack([tf.size(serialized, tf.int64), 1])
    return {**parsed, **{name: SparseColumn(first, parsed[name], shape) for name in required}}


def _parse_examples(serialized: tf.Tensor, specs: FeatureSpecs) -> ParsedColumns:
    """Parse as tf.io.parse_example does, without a graph node per FixedLenFeature."""
    sparse = [name for name, spec in specs.items() if isinstance(spec, tf.io.VarLenFeature)]
    dense = [name for name, spec in specs.items() if not isinstance(spec, tf.io.VarLenFeature)]
    # An empty default makes the op refuse a row without a value.
    no_default = {dtype: tf.constant([], dtype) for dtype in {specs[name].dtype for name in dense}}
    outputs = tf.raw_ops.ParseExampleV2(
        serialized=serialized,
        names=tf.constant([], tf.string),
        sparse_keys=tf.constant(sparse, tf.string),
        dense_keys=tf.constant(dense, tf.string),
        ragged_keys=tf.constant([], tf.string),
        dense_defaults=[
            no_default[spec.dtype]
            if spec.default_value is None
            else tf.reshape(tf.constant(spec.default_value, spec.dtype), spec.shape)
            for spec in (specs[name] for name in dense)
        ],
        num_sparse=len(sparse),
        sparse_types=[specs[name].dtype for name in sparse],
        ragged_value_types=[],
        ragged_split_types=[],
        dense_shapes=[specs[name].shape for name in dense],
    )
    parts = zip(outputs.sparse_indices, outputs.sparse_values, outputs.sparse_shapes, strict=True)
    columns: ParsedColumns = dict(zip(sparse, itertools.starmap(SparseColumn, parts), strict=True))
    return columns | dict(zip(dense, outputs.dense_values, strict=True))


def _refuse_further_values(parsed: ParsedColumns, bounded: Mapping[str, int]) -> list[tf.Operation]:
    """Check the maximum number of values per row in columns that have a bound."""
    if not bounded:
        return []
    counts = tf.stack([parsed[name].dense_shape for name in bounded])[:, 1]
    most = tf.constant([*bounded.values()], tf.int64)
    return [_refuse("at most one value in a row, or as many as in the training data", counts > most, list(bounded))]


def _refuse_no_numbers(parsed: ParsedColumns, numbers: list[str]) -> list[tf.Operation]:
    """Check that the values of required columns of floats, [batch], are finite."""
    if not numbers:
        return []
    is_finite = tf.math.is_finite(tf.stack([parsed[name] for name in numbers]))
    return [_refuse("a finite number in every row", ~tf.reduce_all(is_finite, axis=1), numbers)]


def _refuse(expected: str, is_wrong: tf.Tensor, names: list[str]) -> tf.Operation:
    """Add an assertion that fails if any column is wrong; `is_wrong` has the shape [columns]."""
    wrong = tf.boolean_mask(tf.constant(names), is_wrong)
    return tf.debugging.Assert(~tf.reduce_any(is_wrong), [f"expected {expected}, received others in:", wrong])
