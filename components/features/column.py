"""A raw column inside the transform graph: its values, and where they are missing.

TFT traces a preprocessing_fn about ten times, and the Python that adds an op to a graph is what Transform spends most
of its time on with small data. So what is done to many columns stands in graph functions: traced once for each dtype,
and one op wherever they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf

Function = TypeVar("Function", bound=Callable[..., Any])


def graph_function(function: Function) -> Function:
    """Makes a function of tensors into one op of the graph that calls it; without Python control flow on tensors."""
    return tf.function(function, autograph=False, reduce_retracing=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Column:
    """One value per example, or none; for those that ask for them, all values.

    Attributes:
      name: the column's name in the data.
      values: int64, float32 or string, shape [batch]; 0 or "" where the value is missing.
      present: bool, shape [batch].
      parsed: the feature as it was parsed, SparseTensor [batch, n], or Tensor [batch] or [batch, n].
    """

    name: str
    values: Any
    present: Any
    parsed: Any

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
        return _as_texts(self.values)

    def all_texts(self) -> Any:
        """All values of each example as strings, RaggedTensor [batch, values]; no value where it is missing."""
        if isinstance(self.parsed, tf.SparseTensor):
            return _all_of_sparse(self.parsed.indices, self.parsed.values, self.parsed.dense_shape)
        return _all_of_dense(_matrix(self.parsed))


def joined(columns: Sequence[Column]) -> Column:
    """Several columns as one of strings, different wherever they differ; missing where any of them is."""
    values, present = _joined([column.texts() for column in columns], [column.present for column in columns])
    return Column("+".join(column.name for column in columns), values, present, values)


def column(name: str, tensor: Any) -> Column:
    """The column in a parsed feature, sparse or dense.

    A float that is not finite counts as missing. Of several values in one example, the first is taken.

    Args:
      name: the column's name.
      tensor: SparseTensor [batch, n], or Tensor [batch] or [batch, n].
    """
    if isinstance(tensor, tf.SparseTensor):
        values, present = _of_sparse(tensor.indices, tensor.values, tensor.dense_shape)
    else:
        values, present = _of_dense(_matrix(tensor))
    return Column(name, values, present, tensor)


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
    values = tensor[:, 0]
    return _finite(values, tf.ones_like(values, tf.bool))


@graph_function
def _all_of_sparse(indices: Any, values: Any, shape: Any) -> Any:
    return tf.RaggedTensor.from_value_rowids(_as_texts(values), indices[:, 0], nrows=shape[0], validate=False)


@graph_function
def _all_of_dense(tensor: Any) -> Any:
    return tf.RaggedTensor.from_tensor(_as_texts(tensor))


@graph_function
def _joined(texts: Sequence[Any], present: Sequence[Any]) -> tuple[Any, Any]:
    # With its length before it, a text cannot pass for the end of one and the beginning of the next.
    parts = [part for text in texts for part in (tf.strings.as_string(tf.strings.length(text)), ":", text)]
    everywhere = tf.reduce_all(tf.stack(present), axis=0)
    return tf.where(everywhere, tf.strings.join(parts), ""), everywhere


def _matrix(tensor: Any) -> Any:
    """A tensor [batch] or [batch, n] as [batch, n]."""
    # Not within a graph function: one that is traced for tensors of both ranks gets to know neither.
    return tensor[:, tf.newaxis] if tensor.shape.rank == 1 else tensor


def _as_texts(values: Any) -> Any:
    return values if values.dtype == tf.string else tf.strings.as_string(values)


def _finite(values: Any, present: Any) -> tuple[Any, Any]:
    if not values.dtype.is_floating:
        return values, present
    present = present & tf.math.is_finite(values)
    return tf.where(present, values, tf.zeros_like(values)), present


@graph_function
def _known(tensor: Any, present: Any) -> Any:
    return tf.boolean_mask(tensor, present)
