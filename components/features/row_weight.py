"""The weight of a row in the transform graph."""

from __future__ import annotations

import tensorflow as tf

from components.base.errors import InputError
from components.features import feature_names
from components.features.analysis import Scale
from components.features.column import Column


def compute(column: Column) -> tf.Tensor:
    """Return the weights of a batch: float64, shape [batch]; NaN where the value is missing.

    Raises:
      InputError: The column has text.
    """
    if column.dtype == "bytes":
        raise InputError(
            f"data.weight: expected a column of numbers, received {column.name!r}, which holds text",
            "choose a column of numbers, or remove data.weight",
        )
    weights = tf.cast(column.values, tf.float64)
    return tf.where(column.present, weights, tf.fill(tf.shape(weights), tf.constant(float("nan"), tf.float64)))


def requirement(weights: tf.Tensor) -> Scale:
    """Return the statistics of the weights that the Trainer reads, the file `feature_names.WEIGHT_SCALE`."""
    return Scale(weights, feature_names.WEIGHT_SCALE)
