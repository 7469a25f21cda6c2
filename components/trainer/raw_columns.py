"""The columns of the signature `raw` in the form of parsed tf.Examples, which the transform graph reads.

In `raw` every column has shape [batch], one value for each example. A value is missing where a text is empty, a float
is NaN, or an integer is the smallest int64. The events of a history have shape [batch, events]; missing values follow
the events of shorter ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from components.trainer.packed_columns import FeatureSpecs, ParsedColumns, split_columns
from components.trainer.probe_rows import MISSING_INT


def raw_specs(features: FeatureSpecs, histories: Collection[str]) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of `raw`.

    Args:
      features: the columns.
      histories: those with the events of histories.
    """
    return {
        name: tf.TensorSpec([None, None] if name in histories else [None], spec.dtype, name=name)
        for name, spec in features.items()
    }


def as_parsed(columns: Mapping[str, tf.Tensor], features: FeatureSpecs) -> ParsedColumns:
    """Converts columns of `raw`, all of them or some, to parsed ones."""
    parsed: ParsedColumns = {}
    singles: dict[tf.DType, list[str]] = {}
    for name, values in columns.items():
        if not isinstance(features[name], tf.io.VarLenFeature):
            parsed[name] = _as_dense(values, features[name])
        elif values.shape.rank == 2:
            parsed[name] = tf.ragged.boolean_mask(values, _is_present(values)).to_sparse()
        else:
            singles.setdefault(values.dtype, []).append(name)
    for names in singles.values():
        parsed |= zip(names, _as_sparse([columns[name] for name in names]), strict=True)
    return {name: parsed[name] for name in columns}


def _as_dense(values: tf.Tensor, spec: tf.io.FixedLenFeature) -> tf.Tensor:
    if values.shape.rank == 1:
        # If the schema expects several values, all are set to the one: the operations compute the same from it.
        values = tf.tile(values[:, tf.newaxis], [1, math.prod(spec.shape)])
    return tf.reshape(values, [-1, *spec.shape])


def _as_sparse(columns: list[tf.Tensor]) -> list[tf.SparseTensor]:
    """Converts columns of one dtype, [batch] each, at once."""
    matrix = tf.stack(columns)
    is_present = _is_present(matrix)
    # By column, then by row.
    rows = tf.pad(tf.where(is_present)[:, 1:], [[0, 0], [0, 1]])
    counts = tf.reduce_sum(tf.cast(is_present, tf.int64), axis=1)
    shape = tf.stack([tf.shape(matrix, tf.int64)[1], tf.constant(1, tf.int64)])
    indices = split_columns(rows, counts, len(columns))
    values = split_columns(tf.boolean_mask(matrix, is_present), counts, len(columns))
    return [tf.SparseTensor(*each, shape) for each in zip(indices, values, strict=True)]


def _is_present(values: tf.Tensor) -> Any:
    if values.dtype == tf.string:
        return tf.not_equal(values, "")
    if values.dtype.is_floating:
        return tf.logical_not(tf.math.is_nan(values))
    return tf.not_equal(values, MISSING_INT)
