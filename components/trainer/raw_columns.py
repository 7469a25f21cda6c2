"""The columns of the signature `raw` in the form of parsed tf.Examples, which the transform graph reads.

In `raw` every column has shape [batch], one value for each example. A value is missing where a text is empty, a float
is NaN, or an integer is the smallest int64. The events of a history have shape [batch, events]; missing values follow
the events of shorter ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from components.trainer.probe_rows import MISSING_INT

FeatureSpecs: TypeAlias = Mapping[str, Any]
"""Raw column → tf.io.VarLenFeature or tf.io.FixedLenFeature."""
ParsedColumns: TypeAlias = dict[str, "tf.Tensor | tf.SparseTensor"]
"""Raw column → its values, as tf.io.parse_example returns them."""


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


def parsed_specs(features: FeatureSpecs) -> dict[str, Any]:
    """Returns the types of parsed columns."""
    return {
        name: tf.SparseTensorSpec([None, None], spec.dtype)
        if isinstance(spec, tf.io.VarLenFeature)
        else tf.TensorSpec([None, *spec.shape], spec.dtype)
        for name, spec in features.items()
    }


def as_parsed(columns: Mapping[str, tf.Tensor], features: FeatureSpecs) -> ParsedColumns:
    """Converts columns of `raw`, all of them or some, to parsed ones."""
    first = next(iter(columns.values()))
    shape = tf.stack([tf.shape(first, tf.int64)[0], tf.constant(1, tf.int64)])
    return {name: _as_parsed(values, features[name], shape) for name, values in columns.items()}


def _as_parsed(values: tf.Tensor, spec: Any, shape: tf.Tensor) -> tf.Tensor | tf.SparseTensor:
    """Converts a column.

    Args:
      values: the column, [batch] or [batch, events].
      spec: its spec.
      shape: [batch, 1].
    """
    if not isinstance(spec, tf.io.VarLenFeature):
        if values.shape.rank == 1:
            # If the schema expects several values, all are set to the one: the operations compute the same from it.
            values = tf.tile(values[:, tf.newaxis], [1, math.prod(spec.shape)])
        return tf.reshape(values, [-1, *spec.shape])
    if values.dtype == tf.string:
        present = tf.not_equal(values, "")
    elif values.dtype.is_floating:
        present = tf.logical_not(tf.math.is_nan(values))
    else:
        present = tf.not_equal(values, MISSING_INT)
    if values.shape.rank == 2:
        return tf.ragged.boolean_mask(values, present).to_sparse()
    rows = tf.where(present)
    return tf.SparseTensor(tf.pad(rows, [[0, 0], [0, 1]]), tf.gather_nd(values, rows), shape)
