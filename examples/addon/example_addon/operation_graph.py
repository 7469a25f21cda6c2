"""The functions of `sqrt`, which become part of the transform graph."""

from __future__ import annotations

import tensorflow as tf

from components.features.column import FirstValues
from components.features.feature_spec import Dense
from components.features.operation import operation
from example_addon.operation import Sqrt


@operation(Sqrt, output_spec=lambda op, name, size: Dense(ordered=True), elementwise=True)
def _sqrt(_op: Sqrt, column: FirstValues, _analyzed: None) -> tf.Tensor:
    # A missing value is 0 in `values`.
    numbers = tf.cast(column.values, tf.float32)
    return tf.sign(numbers) * tf.sqrt(tf.abs(numbers))
