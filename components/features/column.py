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

    def sparse(self, values: Any) -> Any:
        """The present ones among `values` (shape [batch]) as a SparseTensor of shape [batch, 1]."""
        rows = tf.where(self.present)
        indices = tf.concat([rows, tf.zeros_like(rows)], axis=1)
        shape = tf.stack([tf.shape(values, out_type=tf.int64)[0], tf.constant(1, tf.int64)])
        return tf.SparseTensor(indices, tf.gather(values, rows[:, 0]), shape)

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
        batch = tensor.dense_shape[0]
        first = tf.sparse.slice(tensor, [0, 0], tf.stack([batch, tf.constant(1, tf.int64)]))
        first = tf.SparseTensor(first.indices, first.values, tf.stack([batch, tf.constant(1, tf.int64)]))
        values = dense(first, _nothing(tensor.dtype))
        marks = tf.SparseTensor(first.indices, tf.ones_like(first.values, tf.int64), first.dense_shape)
        present = dense(marks, 0) > 0
    else:
        values = tf.reshape(tensor, [-1])
        present = tf.ones_like(values, tf.bool)
    if values.dtype.is_floating:
        present = present & tf.math.is_finite(values)
        values = tf.where(present, values, tf.zeros_like(values))
    return Column(name, values, present)


def dense(tensor: Any, default: Any) -> Any:
    """A SparseTensor [batch, 1] as a Tensor [batch], with a default where there is no value."""
    filled = tf.sparse.to_dense(tensor, default_value=tf.cast(default, tensor.dtype) if default != "" else "")
    return tf.reshape(filled, [-1])


def _nothing(dtype: Any) -> Any:
    return "" if dtype == tf.string else 0
