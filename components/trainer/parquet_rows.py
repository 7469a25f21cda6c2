"""Transformed examples in Parquet files as NumPy arrays: a worker's shard, or its shuffled batches in bounded memory.

Without TensorFlow, so that TensorFlow calls it from the process that holds the iterator, see `parquet_source`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.data import row_groups
from components.data.row_groups import RowGroup
from components.errors import MachineError

Values: TypeAlias = npt.NDArray[Any]
"""int64, float32, or bytes objects."""
Ints: TypeAlias = npt.NDArray[np.int64]

_TYPES = {"int64": pa.int64(), "float32": pa.float32(), "string": pa.large_binary()}


@dataclass(frozen=True)
class Part:
    """Columns that are kept together, because one gather for all is faster than one for each.

    Attributes:
      columns: their names.
      dtype: int64, float32 or string.
      width: values of each column in each row; None: any number, and there is one column.
    """

    columns: tuple[str, ...]
    dtype: str
    width: int | None


@dataclass(frozen=True)
class Lists:
    """A column with any number of values in a row.

    Attributes:
      values: of all rows, one after the other.
      splits: where the values of each row begin, and the end of the last one; shape [rows + 1].
    """

    values: Values
    splits: Ints

    def take(self, rows: Ints) -> Lists:
        """Returns the lists of these rows."""
        starts, sizes = self.splits[rows], self.splits[rows + 1] - self.splits[rows]
        splits: Ints = np.append(0, np.cumsum(sizes))
        return Lists(self.values[np.repeat(starts - splits[:-1], sizes) + np.arange(splits[-1])], splits)


Rows: TypeAlias = "list[Values | Lists]"
"""For each part its values in some rows: shape [rows, columns * width], or Lists."""


def take(rows: Rows, numbers: Ints) -> Rows:
    """Returns a copy of some rows."""
    return [part.take(numbers) if isinstance(part, Lists) else part.take(numbers, axis=0) for part in rows]


def arrays(rows: Rows) -> list[Values]:
    """Returns one array for each part, and two for lists: values and splits."""
    return [array for part in rows for array in ((part.values, part.splits) if isinstance(part, Lists) else (part,))]


def join(chunks: Iterable[Rows], count: int) -> Rows:
    """Concatenates rows; holds only one chunk besides the result, apart from lists.

    Args:
      chunks: at least one.
      count: the number of rows in all.
    """
    filled: Rows = []
    lists: list[list[Lists]] = []
    at = 0
    for chunk in chunks:
        if not filled:
            filled = [each if isinstance(each, Lists) else np.empty((count, each.shape[1]), each.dtype) for each in chunk]
            lists = [[] for _ in chunk]
        for part, target, pending in zip(chunk, filled, lists, strict=True):
            if isinstance(part, Lists):
                pending.append(part)
            else:
                target[at : at + len(part)] = part
        at += _length(chunk)
    return [_join_lists(pending) if pending else part for part, pending in zip(filled, lists, strict=True)]


@dataclass(frozen=True)
class Shard:
    """The examples of one worker.

    Attributes:
      groups: the row groups of all workers, at least one.
      parts: the columns to read.
      index: the worker's number.
      count: number of workers, at most as many as there are rows.
    """

    groups: Sequence[RowGroup]
    parts: Sequence[Part]
    index: int
    count: int

    def load(self) -> Rows:
        """Returns every `count`-th row of the files, from row `index` on."""
        total = sum(group.rows for group in self.groups)
        return join(self._own(), -(-(total - self.index) // self.count))

    def _own(self) -> Iterator[Rows]:
        start = 0
        for group in self.groups:
            own = np.arange((self.index - start) % self.count, group.rows, self.count)
            if len(own):
                yield take(read(group, self.parts), own)
            start += group.rows


@dataclass(frozen=True)
class _Window:
    """Rows that are shuffled together.

    Attributes:
      epoch: number of the epoch.
      index: number of the window in the epoch.
      rows: in the order in which they are read.
      order: the random order of their numbers.
    """

    epoch: int
    index: int
    rows: Rows
    order: Ints


class ShuffledShard:
    """Batches of a worker in a random order that depends on the seed and the worker only.

    In every epoch the row groups are put into a new order, and each worker takes as many consecutive rows of it as the
    others. It reads them in windows of `buffer` rows, and takes the rows of a window in random order. Which row groups
    a window consists of follows from their numbers of rows, so no batch depends on the ones before it.

    One window is held in memory, and while it is read a row group.

    Args:
      shard: the examples.
      seed: of the order.
      buffer: rows of a window; more are shuffled better.
      batch_size: rows of a batch.
    """

    def __init__(self, shard: Shard, seed: int, buffer: int, batch_size: int) -> None:
        self._shard, self._seed, self._buffer, self._batch_size = shard, seed, buffer, batch_size
        self._sizes: Ints = np.array([group.rows for group in shard.groups])
        total = int(self._sizes.sum())
        self._first, self._last = (total * each // shard.count for each in (shard.index, shard.index + 1))
        self._window: _Window | None = None
        self._group: tuple[RowGroup, Rows] | None = None

    def batch(self, number: int) -> Rows:
        """Returns batch `number` since the beginning of training; batches that follow each other are read fastest."""
        position, rows, taken = number * self._batch_size, self._last - self._first, 0
        chunks = []
        while taken < self._batch_size:
            epoch, at = divmod(position + taken, rows)
            index, inside = divmod(at, self._buffer)
            window = self._read_window(epoch, index)
            numbers = window.order[inside : inside + self._batch_size - taken]
            chunks.append(take(window.rows, numbers))
            taken += len(numbers)
        return chunks[0] if len(chunks) == 1 else join(chunks, self._batch_size)

    def _random(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *numbers])

    def _read_window(self, epoch: int, index: int) -> _Window:
        window = self._window
        if window is None or (window.epoch, window.index) != (epoch, index):
            # The last window is released before the next one is read.
            self._window = window = None
            start = self._first + index * self._buffer
            stop = min(start + self._buffer, self._last)
            order = self._random(epoch, self._shard.index + 1, index).permutation(stop - start)
            window = self._window = _Window(epoch, index, join(self._slices(epoch, start, stop), stop - start), order)
        return window

    def _slices(self, epoch: int, start: int, stop: int) -> Iterator[Rows]:
        """Yields rows [start, stop) of the row groups in the order of an epoch."""
        order = self._random(epoch, 0).permutation(len(self._sizes))
        ends = np.cumsum(self._sizes[order])
        for at in range(int(np.searchsorted(ends, start, side="right")), len(order)):
            begin = int(ends[at] - self._sizes[order[at]])
            if begin >= stop:
                return
            rows = self._read(self._shard.groups[order[at]])
            yield take(rows, np.arange(max(start - begin, 0), min(stop, int(ends[at])) - begin))

    def _read(self, group: RowGroup) -> Rows:
        if self._group is None or self._group[0] != group:
            self._group = None
            self._group = group, read(group, self._shard.parts)
        return self._group[1]


def read(group: RowGroup, parts: Sequence[Part]) -> Rows:
    """Reads a row group.

    Raises:
      MachineError: the file cannot be read, or a column is not as the transform graph describes it.
    """
    batch = row_groups.read(group, [name for part in parts for name in part.columns])
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return [_read_part(group.path, {name: columns[name] for name in part.columns}, part) for part in parts]


def _read_part(path: str, columns: dict[str, pa.Array], part: Part) -> Values | Lists:
    lists = {name: _lists(path, name, column, part.dtype) for name, column in columns.items()}
    sizes = {name: pc.fill_null(pc.list_value_length(column), 0) for name, column in lists.items()}
    if part.width is None:
        (name,) = part.columns
        return Lists(_values(lists[name]), np.append(0, np.cumsum(np.asarray(sizes[name]))))
    rows = len(sizes[part.columns[0]])
    matrix = np.empty((rows, len(columns) * part.width), object if part.dtype == "string" else part.dtype)
    for at, name in enumerate(part.columns):
        if not pc.all(pc.equal(sizes[name], part.width)).as_py():
            raise _unexpected(path, name, f"{part.width} values in every row", "another number")
        matrix[:, at * part.width : (at + 1) * part.width] = _values(lists[name]).reshape(rows, part.width)
    return matrix


def _lists(path: str, name: str, column: pa.Array, dtype: str) -> pa.Array:
    """Checks the type of a column."""
    expected = pa.large_list(_TYPES[dtype])
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), expected)
    if column.type != expected:
        raise _unexpected(path, name, str(expected), str(column.type))
    return column


def _values(lists: pa.Array) -> Values:
    """The values of all lists: a view of Arrow's memory for numbers, copies for texts."""
    values = lists.flatten()
    numbers: Values = values.to_numpy(zero_copy_only=not pa.types.is_large_binary(values.type))
    return numbers


def _length(rows: Rows) -> int:
    first = rows[0]
    return len(first.splits) - 1 if isinstance(first, Lists) else len(first)


def _join_lists(chunks: Sequence[Lists]) -> Lists:
    sizes = np.concatenate([np.diff(chunk.splits) for chunk in chunks])
    return Lists(np.concatenate([chunk.values for chunk in chunks]), np.append(0, np.cumsum(sizes)))


def _unexpected(path: str, name: str, expected: str, received: str) -> MachineError:
    return MachineError(
        f"{path}, column {name}: expected {expected}, as the transform graph describes it, received {received}",
        "run Transform again with --no-cache",
    )
