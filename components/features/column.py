"""A raw column in the transform graph: its values, and where they are missing.

TFT traces a preprocessing_fn about ten times, and with small data Transform spends most of its time in the Python code
that adds ops to a graph. Therefore code that runs for many columns is in graph functions: each is traced once per
dtype, and each call adds one op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf

Function = TypeVar("Function", bound=Callable[..., Any])
Parsed: TypeAlias = tf.Tensor | tf.SparseTensor
"""A parsed feature: SparseTensor [batch, n], or Tensor [batch] or [batch, n]; int64, float32 or string."""


def graph_function(function: Function) -> Function:
    """Makes a function of tensors one op of the calling graph; Python control flow on tensors is not converted."""
    return tf.function(function, autograph=False, reduce_retracing=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Column:
    """A raw column: its first value in each example, and all values for operations that use them.

    Attributes:
      name: the column's name in the data.
      values: int64, float32 or string, shape [batch]; 0 or "" where the value is missing.
      present: bool, shape [batch].
      parsed: the parsed feature, with all values.
      reference: another column that an operation compares the values with.
    """

    name: str
    values: tf.Tensor
    present: tf.Tensor
    parsed: Parsed
    reference: Column | None = None

    @property
    def dtype(self) -> str:
        """The type in tf.Example: int, float or bytes."""
        if self.values.dtype == tf.string:
            return "bytes"
        return "float" if self.values.dtype.is_floating else "int"

    def where_present(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the elements of a tensor of shape [batch] whose value is not missing, shape [n]."""
        return _where_present(tensor, self.present)

    def numbers(self) -> tf.Tensor:
        """Returns the values as float64, shape [batch]: float32 rounds integers beyond 2**24."""
        return tf.cast(self.values, tf.float64)

    def decimal_numbers(self) -> tf.Tensor:
        """Returns the values as float64, shape [batch]; floats as in `components.data.decimals`."""
        return _decimal_numbers(self.values)

    def decimal_texts(self) -> tf.Tensor:
        """Returns floats as the shortest decimals that round to them: string, shape [batch]."""
        return _shortest(self.values)

    def texts(self) -> tf.Tensor:
        """Returns the values as strings, shape [batch]."""
        return _as_texts(self.values)

    def all_texts(self) -> tf.RaggedTensor:
        """Returns all values of each example as strings, RaggedTensor [batch, values]; no value where it is missing."""
        values = self.all_values()
        return values.with_flat_values(_as_texts(values.flat_values))

    def all_values(self) -> tf.RaggedTensor:
        """Returns all values of each example, RaggedTensor [batch, values]; no value where it is missing."""
        if isinstance(self.parsed, tf.SparseTensor):
            return _all_of_sparse(self.parsed.indices, self.parsed.values, self.parsed.dense_shape)
        return _all_of_dense(_matrix(self.parsed))


def joined(columns: Sequence[Column]) -> Column:
    """Joins columns to one of strings: examples that differ in any column differ in it; missing if any column is."""
    values, present = _joined([column.texts() for column in columns], [column.present for column in columns])
    return Column("+".join(column.name for column in columns), values, present, values)


def column(name: str, tensor: Parsed) -> Column:
    """Makes the column of a parsed feature.

    A float that is not finite counts as missing. If an example has several values, `values` has the first.

    Args:
      name: the column's name.
      tensor: the parsed feature.
    """
    if isinstance(tensor, tf.SparseTensor):
        values, present = _of_sparse(tensor.indices, tensor.values, tensor.dense_shape)
    else:
        values, present = _of_dense(_matrix(tensor))
    return Column(name, values, present, tensor)


@graph_function
def _of_sparse(indices: tf.Tensor, values: tf.Tensor, shape: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    first = tf.equal(indices[:, 1], 0)
    rows = tf.boolean_mask(indices[:, :1], first)
    batch = shape[:1]
    dense = tf.ensure_shape(tf.scatter_nd(rows, tf.boolean_mask(values, first), batch), [None])
    present = tf.ensure_shape(tf.scatter_nd(rows, tf.ones_like(rows[:, 0], tf.bool), batch), [None])
    return _finite(dense, present)


@graph_function
def _of_dense(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    values = tensor[:, 0]
    return _finite(values, tf.ones_like(values, tf.bool))


@graph_function
def _all_of_sparse(indices: tf.Tensor, values: tf.Tensor, shape: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_value_rowids(values, indices[:, 0], nrows=shape[0], validate=False)


@graph_function
def _all_of_dense(tensor: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_tensor(tensor)


@graph_function
def _joined(texts: Sequence[tf.Tensor], present: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    # The length in front of each text makes the joined text unambiguous.
    parts = [part for text in texts for part in (tf.strings.as_string(tf.strings.length(text)), ":", text)]
    everywhere = tf.reduce_all(tf.stack(present), axis=0)
    return tf.where(everywhere, tf.strings.join(parts), ""), everywhere


@graph_function
def _decimal_numbers(values: tf.Tensor) -> tf.Tensor:
    if values.dtype != tf.float32:
        return tf.cast(values, tf.float64)
    return tf.strings.to_number(_shortest(values), tf.float64)


@graph_function
def _shortest(values: tf.Tensor) -> tf.Tensor:
    # as_string formats with %g, which does not look for the shortest text: nine digits identify every float32 value.
    texts = tf.strings.as_string(values, precision=9, shortest=True)
    for digits in range(8, 5, -1):
        shorter = tf.strings.as_string(values, precision=digits, shortest=True)
        texts = tf.where(tf.equal(tf.strings.to_number(shorter, tf.float32), values), shorter, texts)
    return texts


def _matrix(tensor: tf.Tensor) -> tf.Tensor:
    """Reshapes a tensor [batch] or [batch, n] to [batch, n]."""
    # Not in a graph function: traced for tensors of both ranks, it would lose the static rank.
    return tensor[:, tf.newaxis] if tensor.shape.rank == 1 else tensor


def _as_texts(values: tf.Tensor) -> tf.Tensor:
    if values.dtype.is_floating:
        # Requests can hold -0.0, which ingest turns into 0.0: one number must not be two words.
        values = tf.where(tf.equal(values, 0), tf.zeros_like(values), values)
    return values if values.dtype == tf.string else tf.strings.as_string(values)


def _finite(values: tf.Tensor, present: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    if not values.dtype.is_floating:
        return values, present
    present = present & tf.math.is_finite(values)
    return tf.where(present, values, tf.zeros_like(values)), present


@graph_function
def _where_present(tensor: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    return tf.boolean_mask(tensor, present)
