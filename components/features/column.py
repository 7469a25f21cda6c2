"""A raw column in the transform graph: its values, and whether they are missing.

TFT traces a preprocessing_fn about ten times, and with small data Transform spends most of its time in the Python code
that adds ops to a graph. Therefore code that runs for many columns is in graph functions. A graph function is traced
once per dtype, and a call of it adds a single op. Elementwise operations process many columns at once, see
`column_group`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import tensorflow as tf

from components.features.base_op import Dtype

Function = TypeVar("Function", bound=Callable[..., Any])
Parsed: TypeAlias = tf.Tensor | tf.SparseTensor
"""A parsed feature: SparseTensor of shape [batch, n], or Tensor of shape [batch] or [batch, n]; int64, float32 or
string."""


def graph_function(function: Function) -> Function:
    """Decorate a function of tensors so that a call adds one op to the graph. AutoGraph does not convert it."""
    return tf.function(function, autograph=False, reduce_retracing=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FirstValues:
    """The first values of the examples, in one column or in all columns of a group.

    Attributes:
      values: Values, int64, float32 or string; shape [batch], or [batch, columns] for a group. A missing value is 0 or
        "".
      present: Whether a value is present; bool, same shape as `values`.
    """

    values: tf.Tensor
    present: tf.Tensor

    @property
    def dtype(self) -> Dtype:
        """The type in tf.Example: int, float or bytes."""
        return dtype_of(self.values)

    def numbers(self) -> tf.Tensor:
        """Return the values as float64, because float32 rounds integers beyond 2**24."""
        return tf.cast(self.values, tf.float64)

    def mark_missing(self, numbers: tf.Tensor) -> tf.Tensor:
        """Replace numbers by NaN where the value is missing; float64, same shape as `values`."""
        return tf.where(self.present, numbers, tf.constant(math.nan, tf.float64))

    def decimal_numbers(self) -> tf.Tensor:
        """Return the values as float64. Floats are converted as in `components.data.decimals`."""
        return _decimal_numbers(self.values)

    def decimal_texts(self) -> tf.Tensor:
        """Return floats as strings, the shortest decimals that round to them."""
        return _shortest(self.values)

    def texts(self) -> tf.Tensor:
        """Return the values as strings."""
        return _as_texts(self.values)


class RowLabels(Protocol):
    """The labels, weights and folds of a batch of rows; see `components.features.target.Target`."""

    @property
    def labels(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The classes and the labels."""

    @property
    def weights(self) -> tf.Tensor:
        """The weights of the rows."""

    @property
    def is_training(self) -> bool:
        """Whether the rows have folds."""

    def folds(self, count: int) -> tf.Tensor:
        """Return the folds of the rows."""


@dataclass(frozen=True)
class Column(FirstValues):
    """A raw column: the first values of the examples, and all values for operations that use them.

    Attributes:
      name: Name of the column in the data.
      parsed: Parsed feature, with all values; or a function that returns it, because few operations read more than the
        first values, and each op of a graph costs time.
      reference: Another column that an operation compares the values with.
      is_raw: Whether this is a column of the data, rather than computed from several columns.
      others: Further columns that the operation reads, in the order of its settings.
      target: Labels and folds of the rows, for an operation that uses the label.
    """

    name: str
    parsed: Parsed | Callable[[], Parsed]
    reference: Column | None = None
    is_raw: bool = False
    others: tuple[Column, ...] = ()
    target: RowLabels | None = None

    def where_present(self, tensor: tf.Tensor) -> tf.Tensor:
        """Select the elements of a tensor of shape [batch] where the value is present; shape [n]."""
        return _where_present(tensor, self.present)

    def all_texts(self) -> tf.RaggedTensor:
        """Return all values as strings, RaggedTensor of shape [batch, values], without missing values."""
        values = self.all_values()
        return values.with_flat_values(_as_texts(values.flat_values))

    def all_values(self) -> tf.RaggedTensor:
        """Return all values, RaggedTensor of shape [batch, values], without missing values."""
        parsed = self.parsed() if callable(self.parsed) else self.parsed
        if isinstance(parsed, tf.SparseTensor):
            return _sparse_to_ragged(parsed.indices, parsed.values, parsed.dense_shape)
        return _dense_to_ragged(_to_matrix(parsed))


def join(columns: Sequence[Column]) -> Column:
    """Join columns to one column of strings.

    Two examples have the same string if they agree in all columns. The string is missing if any column is missing.
    """
    values, present = _join_texts([column.texts() for column in columns], [column.present for column in columns])
    return Column(values, present, "+".join(column.name for column in columns), values)


def column(name: str, tensor: Parsed) -> Column:
    """Create the column of a parsed feature.

    A float that is not finite counts as missing. If an example has several values, `values` contains the first value.

    Args:
      name: Name of the column.
      tensor: Parsed feature.
    """
    if isinstance(tensor, tf.SparseTensor):
        values, present = _take_first_of_sparse(tensor.indices, tensor.values, tensor.dense_shape)
    else:
        values, present = _take_first_of_dense(_to_matrix(tensor))
    return Column(values, present, name, tensor, is_raw=True)


def dtype_of(tensor: Parsed) -> Dtype:
    """Return the type of a parsed feature, or of its values, in a tf.Example: int, float or bytes."""
    if tensor.dtype == tf.string:
        return "bytes"
    return "float" if tensor.dtype.is_floating else "int"


@graph_function
def _take_first_of_sparse(indices: tf.Tensor, values: tf.Tensor, shape: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    rows = tf.where(tf.equal(indices[:, 1], 0), indices[:, 0], shape[0])
    dense, present = scatter_first(rows, values, shape[0])
    return drop_infinite(tf.ensure_shape(dense, [None]), tf.ensure_shape(present, [None]))


def scatter_first(positions: tf.Tensor, values: tf.Tensor, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Scatter values to positions.

    Args:
      positions: Positions of the values; int64, shape [n]. The position `size` drops a value. Other positions must be
        distinct.
      values: Values of any dtype; shape [n].
      size: Number of positions; int64 scalar.

    Returns:
      The values, with 0 or "" at other positions; and whether a position has a value. Both have the shape [size].
    """
    # Scatter dropped values to an additional position. Selecting the other values first would take ten ops and two
    # copies.
    scatter = functools.partial(
        tf.raw_ops.SparseToDense, sparse_indices=positions, output_shape=size[tf.newaxis] + 1, validate_indices=False
    )
    dense = scatter(
        sparse_values=values, default_value=tf.constant("" if values.dtype == tf.string else 0, values.dtype)
    )
    present = scatter(sparse_values=True, default_value=False)
    return dense[:-1], present[:-1]


@graph_function
def _take_first_of_dense(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    values = tensor[:, 0]
    return drop_infinite(values, tf.ones_like(values, tf.bool))


@graph_function
def _sparse_to_ragged(indices: tf.Tensor, values: tf.Tensor, shape: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_value_rowids(values, indices[:, 0], nrows=shape[0], validate=False)


@graph_function
def _dense_to_ragged(tensor: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_tensor(tensor)


@graph_function
def _join_texts(texts: Sequence[tf.Tensor], present: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    # Put the length in front of every text, so that the joined text is unambiguous.
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
    # as_string formats with %g, which does not find the shortest text. Nine digits identify every float32.
    texts = tf.strings.as_string(values, precision=9, shortest=True)
    for digits in range(8, 5, -1):
        shorter = tf.strings.as_string(values, precision=digits, shortest=True)
        texts = tf.where(tf.equal(tf.strings.to_number(shorter, tf.float32), values), shorter, texts)
    return texts


def _to_matrix(tensor: tf.Tensor) -> tf.Tensor:
    """Reshape a tensor of shape [batch] or [batch, n] to [batch, n]."""
    # This is not a graph function, because it would lose the static rank if it were traced for both ranks.
    return tensor[:, tf.newaxis] if tensor.shape.rank == 1 else tensor


def _as_texts(values: tf.Tensor) -> tf.Tensor:
    if values.dtype.is_floating:
        # Requests may contain -0.0, which ingest turns into 0.0. Both must have the same text.
        values = tf.where(tf.equal(values, 0), tf.zeros_like(values), values)
    return values if values.dtype == tf.string else tf.strings.as_string(values)


def drop_infinite(values: tf.Tensor, present: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Treat floats that are not finite as missing; return the values, and whether they are present."""
    if not values.dtype.is_floating:
        return values, present
    present = present & tf.math.is_finite(values)
    return tf.where(present, values, tf.zeros_like(values)), present


@graph_function
def _where_present(tensor: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    return tf.boolean_mask(tensor, present)
