"""A raw column inside the transform graph: its values, and where they are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class Column:
    """One value per example, or none.

    Attributes:
      name: the column's name in the data.
      values: int64, float32 or string, shape [batch]; anything where the value is missing.
      present: bool, shape [batch].
    """

    name: str
    values: Any
    present: Any

    @property
    def dtype(self) -> str:
        """int, float or bytes, as tf.Example knows them."""
        if self.values.dtype == tf.string:
            return "bytes"
        return "float" if self.values.dtype.is_floating else "int"

    def known(self, tensor: Any) -> Any:
        """The part of a tensor of shape [batch] where the value is not missing, shape [n]."""
        return tf.boolean_mask(tensor, self.present)

    def numbers(self) -> Any:
        """The values as float32, shape [batch]."""
        return tf.cast(self.values, tf.float32)

    def texts(self) -> Any:
        """The values as strings, shape [batch]."""
        return self.values if self.values.dtype == tf.string else tf.strings.as_string(self.values)


def column(name: str, tensor: Any) -> Column:
    """The column in a parsed feature, sparse or dense.

    A float that is not finite counts as missing. Of several values in one example, the first is taken.

    Args:
      name: the column's name.
      tensor: SparseTensor [batch, n], or Tensor [batch] or [batch, 1].
    """
    if isinstance(tensor, tf.SparseTensor):
        first = tf.equal(tensor.indices[:, 1], 0)
        rows = tf.boolean_mask(tensor.indices[:, :1], first)
        batch = tensor.dense_shape[:1]
        values = tf.scatter_nd(rows, tf.boolean_mask(tensor.values, first), batch)
        present = tf.scatter_nd(rows, tf.ones_like(rows[:, 0], tf.bool), batch)
    else:
        values = tf.reshape(tensor, [-1])
        present = tf.ones_like(values, tf.bool)
    if values.dtype.is_floating:
        present = present & tf.math.is_finite(values)
        values = tf.where(present, values, tf.zeros_like(values))
    return Column(name, values, present)
