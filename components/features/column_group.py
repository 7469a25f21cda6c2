"""The columns of a batch, which are parsed when an operation reads them: one by one, or all columns of an operation.

A table may have thousands of columns. Ops on a matrix of columns take nearly the same time to trace, to optimise and to
run as ops on a single column. Ops per column would dominate the time of Transform and Trainer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from components.features.base_op import Dtype
from components.features.column import Column, FirstValues, Parsed, column, drop_infinite, dtype_of, scatter_first


@dataclass(frozen=True)
class ColumnGroup(FirstValues):
    """The first values of several columns of one dtype; shape [batch, columns].

    Attributes:
      names: Names of the columns in the data.
    """

    names: tuple[str, ...]


class Columns(Mapping[str, Column]):
    """The columns of a batch.

    A group depends on all of its columns. Therefore the label reads columns one by one, because it is also computed
    without the features.

    Args:
      parsed: Column name → parsed feature.
    """

    def __init__(self, parsed: Mapping[str, Parsed]) -> None:
        self._parsed = parsed
        self._columns: dict[str, Column] = {}
        self._groups: dict[tuple[str, ...], ColumnGroup] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            self._columns[name] = column(name, self._parsed[name])
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed)

    def __len__(self) -> int:
        return len(self._parsed)

    def dtype(self, name: str) -> Dtype:
        """Return the dtype of a column without parsing it."""
        return dtype_of(self._parsed[name])

    def is_sparse(self, name: str) -> bool:
        """Return whether a column is a SparseTensor."""
        return isinstance(self._parsed[name], tf.SparseTensor)

    def group(self, names: Sequence[str]) -> ColumnGroup:
        """Parse several columns at once.

        Args:
          names: Names of the columns. They must have the same dtype, and be all sparse or all dense.
        """
        key = tuple(names)
        if key not in self._groups:
            parsed = [self._parsed[name] for name in key]
            matrices = _take_first_of_sparse(parsed) if self.is_sparse(key[0]) else _take_first_of_dense(parsed)
            self._groups[key] = ColumnGroup(*drop_infinite(*matrices), key)
        return self._groups[key]


def _take_first_of_sparse(columns: Sequence[tf.SparseTensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first values of SparseTensors of shape [batch, n], and whether they exist; both [batch, columns]."""
    rows, width = columns[0].dense_shape[0], len(columns)
    indices = tf.concat([tensor.indices for tensor in columns], axis=0)
    values = tf.concat([tensor.values for tensor in columns], axis=0)
    counts = tf.concat(tf.raw_ops.ShapeN(input=[tensor.values for tensor in columns], out_type=tf.int64), axis=0)
    # The index of a value's column is the number of columns that end before the value. A column without values ends
    # where the previous column ends, so the last columns may end after all values.
    ends = tf.cumsum(counts)[:, tf.newaxis]
    ended = tf.scatter_nd(ends, tf.ones_like(counts), tf.shape(values, tf.int64) + 1)
    number = tf.cumsum(ended)[:-1]
    positions = tf.where(tf.equal(indices[:, 1], 0), indices[:, 0] * width + number, rows * width)
    dense, present = scatter_first(positions, values, rows * width)
    return tf.reshape(dense, [-1, width]), tf.reshape(present, [-1, width])


def _take_first_of_dense(columns: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first values of tensors of shape [batch] or [batch, n], and a mask of ones; both [batch, columns]."""
    matrices = [tensor[:, tf.newaxis] if tensor.shape.rank == 1 else tensor for tensor in columns]
    first = [matrix if matrix.shape[1] == 1 else matrix[:, :1] for matrix in matrices]
    values = tf.concat(first, axis=1)
    return values, tf.ones_like(values, tf.bool)
