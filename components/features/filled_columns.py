"""The columns of a batch from a few matrices, which hold the first values of many columns.

A SparseTensor per column costs three tensors and the same work in Python for every column and every call. Rows of
batches that Transform reads have at most one value in nearly all columns, so a matrix per dtype holds them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf

from components.features.base_op import Dtype
from components.features.column import Column, Parsed, drop_infinite, dtype_of
from components.features.column_group import ColumnGroup, Columns


class FilledColumns(Columns):
    """The columns of a batch in which no row has several values.

    Args:
      names: Names of the columns in the rows of a matrix, for every matrix.
      matrices: For every matrix, the values, shape [columns, batch], and whether a value is present, bool of the same
        shape. A missing value is 0 or "".
      parsed: Column name → parsed feature, of the columns that are in no matrix.
    """

    def __init__(
        self,
        names: Sequence[Sequence[str]],
        matrices: Sequence[tuple[tf.Tensor, tf.Tensor]],
        parsed: Mapping[str, Parsed],
    ) -> None:
        super().__init__(parsed)
        self._matrices = matrices
        self._rows: dict[int, list[tuple[tf.Tensor, tf.Tensor]]] = {}
        self._places = {
            name: (number, row) for number, matrix_names in enumerate(names) for row, name in enumerate(matrix_names)
        }

    def __getitem__(self, name: str) -> Column:
        if name in self._places and name not in self._columns:
            number, row = self._places[name]
            values, present = self._get_row(number, row)
            parsed = functools.partial(_to_sparse, values, present)
            self._columns[name] = Column(*drop_infinite(values, present), name, parsed, is_raw=True)
        return super().__getitem__(name)

    def _get_row(self, number: int, row: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the values of a column, and whether they are present; both of shape [batch]."""
        values, present = self._matrices[number]
        if values.dtype != tf.string:
            return values[row], present[row]
        # Most operations read texts column by column. Slices would take a millisecond each to add to the graph.
        if number not in self._rows:
            self._rows[number] = list(zip(tf.unstack(values), tf.unstack(present), strict=True))
        return self._rows[number][row]

    def __iter__(self) -> Iterator[str]:
        yield from self._places
        yield from super().__iter__()

    def __len__(self) -> int:
        return len(self._places) + super().__len__()

    def dtype(self, name: str) -> Dtype:
        """Return the dtype of a column without parsing it."""
        if name in self._places:
            return dtype_of(self._matrices[self._places[name][0]][0])
        return super().dtype(name)

    def is_sparse(self, name: str) -> bool:
        """Return whether a column is a SparseTensor in the transform graph."""
        return name in self._places or super().is_sparse(name)

    def group(self, names: Sequence[str]) -> ColumnGroup:
        """Return several columns of the same dtype."""
        key = tuple(names)
        filled = [name for name in key if name in self._places]
        if not filled:
            return super().group(names)
        if key not in self._groups:
            (number,) = {self._places[name][0] for name in filled}
            rows = [self._places[name][1] for name in filled]
            values, present = (tf.transpose(tf.gather(matrix, rows)) for matrix in self._matrices[number])
            if len(filled) < len(key):
                lists = super().group([name for name in key if name not in self._places])
                places = {name: place for place, name in enumerate((*filled, *lists.names))}
                order = [places[name] for name in key]
                values, present = (
                    tf.gather(tf.concat(parts, axis=1), order, axis=1)
                    for parts in ((values, lists.values), (present, lists.present))
                )
            self._groups[key] = ColumnGroup(*drop_infinite(values, present), key)
        return self._groups[key]


def _to_sparse(values: tf.Tensor, present: tf.Tensor) -> tf.SparseTensor:
    """Return values of shape [batch] as a SparseTensor of shape [batch, 1]."""
    rows = tf.where(present)
    shape = tf.stack([tf.shape(values, tf.int64)[0], tf.constant(1, tf.int64)])
    return tf.SparseTensor(tf.pad(rows, [[0, 0], [0, 1]]), tf.boolean_mask(values, present), shape)
