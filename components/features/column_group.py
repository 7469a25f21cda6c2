"""The columns of a batch, parsed when an operation reads them: one by one, or all columns of an operation at once.

A table may have thousands of columns. Ops on a matrix of columns cost nearly the same for one column as for all of
them, in the time to trace, to optimise and to run the graph; ops on each column would dominate Transform and Trainer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from components.features.base_op import Dtype
from components.features.column import Column, FirstValues, Parsed, column, dtype_of, finite, scatter_first


@dataclass(frozen=True)
class ColumnGroup(FirstValues):
    """Columns of one dtype: the first value of each column in each example, [batch, columns].

    Attributes:
      names: The columns' names in the data.
    """

    names: tuple[str, ...]


class Columns(Mapping[str, Column]):
    """The columns of a batch.

    A group depends on all of its columns. So the label, which serving computes without the features, reads columns one
    by one.

    Args:
      parsed: Column → parsed feature.
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
        """Whether a column is a SparseTensor."""
        return isinstance(self._parsed[name], tf.SparseTensor)

    def group(self, names: Sequence[str]) -> ColumnGroup:
        """Parse columns at once.

        Args:
          names: The columns; all of one dtype, and all or none of them sparse.
        """
        key = tuple(names)
        if key not in self._groups:
            parsed = [self._parsed[name] for name in key]
            matrices = _of_sparse(parsed) if self.is_sparse(key[0]) else _of_dense(parsed)
            self._groups[key] = ColumnGroup(*finite(*matrices), key)
        return self._groups[key]


def _of_sparse(columns: Sequence[tf.SparseTensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first values of SparseTensors [batch, n], and where there are any: both [batch, columns]."""
    rows, width = columns[0].dense_shape[0], len(columns)
    indices = tf.concat([each.indices for each in columns], axis=0)
    values = tf.concat([each.values for each in columns], axis=0)
    counts = tf.concat(tf.raw_ops.ShapeN(input=[each.values for each in columns], out_type=tf.int64), axis=0)
    # The number of a value's column is the number of columns that end before it. Columns without a value end where the
    # column before them ends, at last behind all values.
    ends = tf.cumsum(counts)[:, tf.newaxis]
    ended = tf.scatter_nd(ends, tf.ones_like(counts), tf.shape(values, tf.int64) + 1)
    number = tf.cumsum(ended)[:-1]
    positions = tf.where(tf.equal(indices[:, 1], 0), indices[:, 0] * width + number, rows * width)
    dense, present = scatter_first(positions, values, rows * width)
    return tf.reshape(dense, [-1, width]), tf.reshape(present, [-1, width])


def _of_dense(columns: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first values of tensors [batch] or [batch, n], and that there are some: both [batch, columns]."""
    matrices = [each[:, tf.newaxis] if each.shape.rank == 1 else each for each in columns]
    first = [each if each.shape[1] == 1 else each[:, :1] for each in matrices]
    values = tf.concat(first, axis=1)
    return values, tf.ones_like(values, tf.bool)
