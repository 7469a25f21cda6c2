"""A raw column inside the transform graph: its values, and where they are missing.

TFT traces a preprocessing_fn about ten times, and the Python that adds an op to a graph is what Transform spends most
of its time on with small data. So what is done to many columns stands in graph functions: traced once for each dtype,
and one op wherever they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf

Function = TypeVar("Function", bound=Callable[..., Any])


def graph_function(function: Function) -> Function:
    """Makes a function of tensors into one op of the graph that calls it; without Python control flow on tensors."""
    return tf.function(function, autograph=False, reduce_retracing=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Column:
    """One value per example, or none.

    Attributes:
      name: the column's name in the data.
      values: int64, float32 or string, shape [batch]; 0 or "" where the value is missing.
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
        return _known(tensor, self.present)

    def numbers(self) -> Any:
        """The values as float32, shape [batch]."""
        return self.values if self.values.dtype == tf.float32 else tf.cast(self.values, tf.float32)

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
        values, present = _of_sparse(tensor.indices, tensor.values, tensor.dense_shape)
    else:
        values, present = _of_dense(tensor)
    return Column(name, values, present)


@graph_function
def _of_sparse(indices: Any, values: Any, shape: Any) -> tuple[Any, Any]:
    first = tf.equal(indices[:, 1], 0)
    rows = tf.boolean_mask(indices[:, :1], first)
    batch = shape[:1]
    dense = tf.ensure_shape(tf.scatter_nd(rows, tf.boolean_mask(values, first), batch), [None])
    present = tf.ensure_shape(tf.scatter_nd(rows, tf.ones_like(rows[:, 0], tf.bool), batch), [None])
    return _finite(dense, present)


@graph_function
def _of_dense(tensor: Any) -> tuple[Any, Any]:
    values = tf.reshape(tensor, [-1])
    return _finite(values, tf.ones_like(values, tf.bool))


def _finite(values: Any, present: Any) -> tuple[Any, Any]:
    if not values.dtype.is_floating:
        return values, present
    present = present & tf.math.is_finite(values)
    return tf.where(present, values, tf.zeros_like(values)), present


@graph_function
def _known(tensor: Any, present: Any) -> Any:
    return tf.boolean_mask(tensor, present)
