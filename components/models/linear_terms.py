"""The linear part of an ensemble: a weight per number, category and word of the matrix that a forest reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from components.models.forest import Floats, Ints, MatrixLayer, TreeInput, matrix


class LinearWeights(NamedTuple):
    """The weights of a linear model.

    Attributes:
      inputs: Inputs of the matrix, in the order of its columns.
      bias: float32, shape [outputs].
      weights: Weights of the columns with numbers and words, 0 for categories; float32, shape [columns, outputs].
      low: Minima of the columns in training. Smaller numbers count as the minimum. float32, shape [columns].
      high: Maxima of the columns in training, likewise; float32, shape [columns].
      columns: The columns with categories; int32, shape [n].
      starts: Rows of `categories` where the categories of these columns begin; int32, shape [n].
      categories: Weights of all categories, float32, shape [sum of the columns' categories, outputs].
    """

    inputs: tuple[TreeInput, ...]
    bias: Floats
    weights: Floats
    low: Floats
    high: Floats
    columns: Ints
    starts: Ints
    categories: Floats


class LinearTerms(MatrixLayer):
    """Computes the logits of a linear model.

    Input: transformed features by name. Output: float32 of shape [batch, outputs].

    Args:
      linear: The weights.
      options: Options of tf_keras.layers.Layer.
    """

    def __init__(self, linear: LinearWeights, **options: Any) -> None:
        super().__init__(linear.inputs, **options)
        self._linear = linear
        # Variables are stored once, and the signatures of a SavedModel share them.
        self._weights, self._categories = (
            self.add_weight(name, values.shape, initializer=tf.constant_initializer(values), trainable=False)
            for name, values in (("weights", linear.weights), ("categories", linear.categories))
        )

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Add the weights."""
        linear = self._linear
        rows = matrix(linear.inputs, features)
        total = tf.matmul(tf.clip_by_value(rows, linear.low, linear.high), self._weights) + linear.bias
        if len(linear.columns):
            positions = tf.cast(tf.gather(rows, linear.columns, axis=1), tf.int32) + linear.starts
            total += tf.reduce_sum(tf.gather(self._categories, positions), axis=1)
        return total
