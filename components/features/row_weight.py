"""The weight of a row in the transform graph."""

from __future__ import annotations

import tensorflow as tf

from components.base.errors import InputError
from components.features import feature_names
from components.features.analysis import Scale
from components.features.column import Column


def compute(column: Column) -> tf.Tensor:
    """Return the weights of a batch, float64 of shape [batch]; NaN where the value is missing.

    Raises:
      InputError: If the column contains text.
    """
    if column.dtype == "bytes":
        raise InputError(
            f"data.weight: expected a column of numbers, received {column.name!r}, which contains text",
            "choose a column of numbers, or remove data.weight",
        )
    weights = tf.cast(column.values, tf.float64)
    return tf.where(column.present, weights, tf.fill(tf.shape(weights), tf.constant(float("nan"), tf.float64)))


def requirement(weights: tf.Tensor) -> Scale:
    """Return the required statistics of the weights, which the Trainer reads from `feature_names.WEIGHT_SCALE`."""
    return Scale(weights, feature_names.WEIGHT_SCALE)
