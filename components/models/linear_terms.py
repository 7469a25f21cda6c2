"""The linear part of an ensemble: a weight per number, category and word of the matrix that a forest reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from components.models.forest import Floats, Ints, TreeInput, matrix


class LinearWeights(NamedTuple):
    """The weights of a linear model.

    Attributes:
      inputs: Inputs of the matrix, in the order of its columns.
      bias: float32, shape [outputs].
      weights: Weights of the columns with numbers and words, 0 for categories; float32, shape [columns, outputs].
      low: Values below which the weights do not apply, so that no number exceeds those in training; shape [columns].
      high: The same above; shape [columns].
      columns: The columns with categories; int32, shape [n].
      starts: Row of `categories` with the category 0 of each of these columns; int32, shape [n].
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


class LinearTerms(tf_keras.layers.Layer):  # type: ignore[misc]
    """Computes the logits of a linear model.

    Input: transformed features by name. Output: float32 of shape [batch, outputs].

    Args:
      linear: The weights.
      options: Options of tf_keras.layers.Layer.
    """

    def __init__(self, linear: LinearWeights, **options: Any) -> None:
        super().__init__(trainable=False, dtype="float32", **options)
        self._linear = linear
        # Variables are stored once, and the signatures of a SavedModel share them.
        self._weights, self._categories = (
            self.add_weight(name, values.shape, initializer=tf.constant_initializer(values), trainable=False)
            for name, values in (("weights", linear.weights), ("categories", linear.categories))
        )

    @property
    def reads(self) -> set[str]:
        """Names of the features that it reads."""
        return {tree_input.feature for tree_input in self._linear.inputs}

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Add the weights."""
        linear = self._linear
        rows = matrix(linear.inputs, features)
        total = tf.matmul(tf.clip_by_value(rows, linear.low, linear.high), self._weights) + linear.bias
        if len(linear.columns):
            positions = tf.cast(tf.gather(rows, linear.columns, axis=1), tf.int32) + linear.starts
            total += tf.reduce_sum(tf.gather(self._categories, positions), axis=1)
        return total
