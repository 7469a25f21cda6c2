"""A raw column in the transform graph: its values, and where they are missing.

TFT traces a preprocessing_fn about ten times, and with small data Transform spends most of its time in the Python code
that adds ops to a graph. Therefore code that runs for many columns is in graph functions: each is traced once per
dtype, and each call adds one op. Operations that compute each value by itself get many columns at once, see
`column_group`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf

from components.features.base_op import Dtype

Function = TypeVar("Function", bound=Callable[..., Any])
Parsed: TypeAlias = tf.Tensor | tf.SparseTensor
"""A parsed feature: SparseTensor [batch, n], or Tensor [batch] or [batch, n]; int64, float32 or string."""


def graph_function(function: Function) -> Function:
    """Make a function of tensors one op of the calling graph; Python control flow on tensors is not converted."""
    return tf.function(function, autograph=False, reduce_retracing=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FirstValues:
    """The first value of each example: of a column, or of each column of a group.

    Attributes:
      values: int64, float32 or string, shape [batch], or [batch, columns] of a group; 0 or "" where one is missing.
      present: Bool, of the same shape.
    """

    values: tf.Tensor
    present: tf.Tensor

    @property
    def dtype(self) -> Dtype:
        """The type in tf.Example: int, float or bytes."""
        return dtype_of(self.values)

    def numbers(self) -> tf.Tensor:
        """Return the values as float64: float32 rounds integers beyond 2**24."""
        return tf.cast(self.values, tf.float64)

    def mark_missing(self, numbers: tf.Tensor) -> tf.Tensor:
        """Replace numbers (float64, of the shape of `values`) by NaN where the value is missing."""
        return tf.where(self.present, numbers, tf.constant(math.nan, tf.float64))

    def decimal_numbers(self) -> tf.Tensor:
        """Return the values as float64; floats as in `components.data.decimals`."""
        return _decimal_numbers(self.values)

    def decimal_texts(self) -> tf.Tensor:
        """Return floats as the shortest decimals that round to them: string."""
        return _shortest(self.values)

    def texts(self) -> tf.Tensor:
        """Return the values as strings."""
        return _as_texts(self.values)


@dataclass(frozen=True)
class Column(FirstValues):
    """A raw column: its first value in each example, and all values for operations that use them.

    Attributes:
      name: The column's name in the data.
      parsed: The parsed feature, with all values.
      reference: Another column that an operation compares the values with.
      is_raw: Whether it is a column of the data, and not computed from several.
    """

    name: str
    parsed: Parsed
    reference: Column | None = None
    is_raw: bool = False

    def where_present(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return the elements of a tensor of shape [batch] whose value is not missing, shape [n]."""
        return _where_present(tensor, self.present)

    def all_texts(self) -> tf.RaggedTensor:
        """Return all values of each example as strings, RaggedTensor [batch, values]; no value where it is missing."""
        values = self.all_values()
        return values.with_flat_values(_as_texts(values.flat_values))

    def all_values(self) -> tf.RaggedTensor:
        """Return all values of each example, RaggedTensor [batch, values]; no value where it is missing."""
        if isinstance(self.parsed, tf.SparseTensor):
            return _all_of_sparse(self.parsed.indices, self.parsed.values, self.parsed.dense_shape)
        return _all_of_dense(_matrix(self.parsed))


def joined(columns: Sequence[Column]) -> Column:
    """Join columns to one of strings: examples that differ in any column differ in it; missing if any column is."""
    values, present = _joined([column.texts() for column in columns], [column.present for column in columns])
    return Column(values, present, "+".join(column.name for column in columns), values)


def column(name: str, tensor: Parsed) -> Column:
    """Make the column of a parsed feature.

    A float that is not finite counts as missing. If an example has several values, `values` has the first.

    Args:
      name: The column's name.
      tensor: The parsed feature.
    """
    if isinstance(tensor, tf.SparseTensor):
        values, present = _of_sparse(tensor.indices, tensor.values, tensor.dense_shape)
    else:
        values, present = _of_dense(_matrix(tensor))
    return Column(values, present, name, tensor, is_raw=True)


def dtype_of(tensor: Parsed) -> Dtype:
    """Return the type in tf.Example of a parsed feature, or of its values: int, float or bytes."""
    if tensor.dtype == tf.string:
        return "bytes"
    return "float" if tensor.dtype.is_floating else "int"


@graph_function
def _of_sparse(indices: tf.Tensor, values: tf.Tensor, shape: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    rows = tf.where(tf.equal(indices[:, 1], 0), indices[:, 0], shape[0])
    dense, present = scatter_first(rows, values, shape[0])
    return finite(tf.ensure_shape(dense, [None]), tf.ensure_shape(present, [None]))


def scatter_first(positions: tf.Tensor, values: tf.Tensor, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Assign values to their positions.

    Args:
      positions: int64, shape [n]; `size` for values that are left out. Other positions occur once.
      values: Of any dtype, shape [n].
      size: Number of positions; int64 scalar.

    Returns:
      The values, 0 or "" elsewhere, and where there is one; both of shape [size].
    """
    # One place more, for what is left out: selecting the others first takes ten ops and two copies of them.
    scatter = functools.partial(
        tf.raw_ops.SparseToDense, sparse_indices=positions, output_shape=size[tf.newaxis] + 1, validate_indices=False
    )
    dense = scatter(
        sparse_values=values, default_value=tf.constant("" if values.dtype == tf.string else 0, values.dtype)
    )
    present = scatter(sparse_values=True, default_value=False)
    return dense[:-1], present[:-1]


@graph_function
def _of_dense(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    values = tensor[:, 0]
    return finite(values, tf.ones_like(values, tf.bool))


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


def finite(values: tf.Tensor, present: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Count floats that are not finite as missing; returns values and where they are present."""
    if not values.dtype.is_floating:
        return values, present
    present = present & tf.math.is_finite(values)
    return tf.where(present, values, tf.zeros_like(values)), present


@graph_function
def _where_present(tensor: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    return tf.boolean_mask(tensor, present)
