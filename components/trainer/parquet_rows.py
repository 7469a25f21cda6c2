"""Transformed examples in Parquet files as NumPy arrays: a worker's shard, or its shuffled batches in bounded memory.

Without TensorFlow, which calls these functions from the process that holds the iterator, see `parquet_source`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.base.errors import MachineError
from components.data import row_groups
from components.data.row_groups import RowGroup
from components.features import feature_names
from components.trainer.validation_part import Mask

Values: TypeAlias = npt.NDArray[Any]
"""int64, float32, or bytes objects."""
Ints: TypeAlias = npt.NDArray[np.int64]

_ALIGNED = 64
"""Bytes; Eigen's greatest alignment."""
_TYPES = {"int64": pa.int64(), "float32": pa.float32(), "string": pa.large_binary()}


class Column(NamedTuple):
    """A column to read.

    Attributes:
      name: its name.
      dtype: int64, float32 or string.
      width: the number of values in each row; None: any number.
      matrix: Columns with the same text are read into one array, in their order. Empty: the column has its own array.
    """

    name: str
    dtype: str
    width: int | None
    matrix: str = ""


@dataclass(frozen=True)
class Lists:
    """A column with any number of values in a row.

    Attributes:
      values: of all rows, one after the other.
      splits: where the values of each row begin, and the end of the last one; shape [rows + 1].
    """

    values: Values
    splits: Ints

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, rows: Ints | slice | Mask) -> Lists:
        starts, ends = self.splits[:-1][rows], self.splits[1:][rows]
        splits = _splits(ends - starts)
        return Lists(self.values[np.repeat(starts - splits[:-1], ends - starts) + np.arange(splits[-1])], splits)


Rows: TypeAlias = "list[Values | Lists]"
"""The values of each column in some rows: shape [rows] for one value in each, [rows, width] for more, or Lists. The
columns of a matrix are one array in the place of the first of them: [rows, columns], or [rows, columns, width]."""


def part(rows: Rows, numbers: slice | Mask) -> Rows:
    """Return some rows; those of a slice as views where possible."""
    return [column[numbers] for column in rows]


def arrays(rows: Rows) -> list[Values]:
    """Return one array for each column, and two for Lists: values and split."""
    return [array for each in rows for array in ((each.values, each.splits) if isinstance(each, Lists) else (each,))]


def join(chunks: Iterable[Rows], count: int, order: Ints | None = None, into: Rows | None = None) -> Rows:
    """Copy rows into one array for each column; hold one chunk besides the result, apart from Lists.

    Args:
      chunks: at least one.
      count: the length of the arrays, at least the number of rows.
      order: where to put each row, a permutation; None: one after the other.
      into: an earlier result of this length, to be overwritten: new memory takes longer than the copy.
    """
    joined: Rows = into or []
    lists: list[list[Lists]] = []
    at = 0
    for chunk in chunks:
        joined = joined or [each if isinstance(each, Lists) else _empty(count, each) for each in chunk]
        lists = lists or [[] for _ in chunk]
        rows = slice(at, at + len(chunk[0]))
        for column, target, pending in zip(chunk, joined, lists, strict=True):
            if isinstance(column, Lists):
                pending.append(column)
            elif not isinstance(target, Lists):
                target[rows if order is None else order[rows]] = column
        at = rows.stop
    return [_join_lists(pending, order) if pending else target for target, pending in zip(joined, lists, strict=True)]


@dataclass(frozen=True)
class Shard:
    """The examples of one worker.

    Attributes:
      groups: the row groups of all workers, at least one.
      columns: the columns to read.
      index: the worker's number.
      count: number of workers, at most as many as there are rows.
      masks: the rows of each group that are read; None: all.
      folds: the fold of each row of each group, for the column FOLD; None: there is no such column.
    """

    groups: Sequence[RowGroup]
    columns: Sequence[Column]
    index: int
    count: int
    masks: Sequence[Mask] | None = None
    folds: Sequence[Ints] | None = None

    @functools.cached_property
    def sizes(self) -> Ints:
        """The number of rows of each group that are read."""
        return np.array([group.rows for group in self.groups] if self.masks is None else [m.sum() for m in self.masks])

    def read(self, number: int) -> Rows:
        """Read a row group; columns of a matrix are stacked.

        A row of a matrix is contiguous: shuffling and slicing hundreds of columns costs as much as a few of them.

        Raises:
          MachineError: as `read`.
        """
        stored = [each for each in self.columns if each.name != feature_names.FOLD]
        rows = read(self.groups[number], stored)
        if self.folds is not None:
            rows.insert([each.name for each in self.columns].index(feature_names.FOLD), self.folds[number])
        rows = stack(rows, self.columns)
        return rows if self.masks is None else part(rows, self.masks[number])

    def load(self) -> Rows:
        """Return every `count`-th row of the files, from row `index` on.

        Raises:
          MachineError: as `read`.
        """
        return join(self._own(), len(range(self.index, int(self.sizes.sum()), self.count)))

    def _own(self) -> Iterator[Rows]:
        before = 0
        for number, size in enumerate(self.sizes):
            first = (self.index - before) % self.count
            if first < size:
                yield part(self.read(number), slice(first, None, self.count))
            before += int(size)


class ShuffledShard:
    """Batches of a worker in a random order that depends on the seed and the worker only.

    In every epoch the row groups are put into a new order, and each worker takes as many consecutive rows of it as the
    others. It reads them in windows of equal size, and takes the rows of a window in random order. Which row groups a
    window consists of follows from their numbers of rows, so no batch depends on the ones before it.

    It holds one window and one row group.

    Args:
      shard: the examples.
      seed: of the order.
      buffer: rows of a window, at most; more are shuffled better.
      batch_size: rows of a batch.
    """

    def __init__(self, shard: Shard, seed: int, buffer: int, batch_size: int) -> None:
        self._shard, self._seed, self._batch_size = shard, seed, batch_size
        self._sizes = shard.sizes
        total = int(self._sizes.sum())
        self._first, last = (total * each // shard.count for each in (shard.index, shard.index + 1))
        self._rows = last - self._first
        self._windows = -(-self._rows // buffer)
        self._window: tuple[int, int] | None = None
        """Epoch of the window that is held, and its number in the epoch."""
        self._shuffled: Rows | None = None
        """The rows of the window, in random order; the last row may be unset, as windows differ by one."""
        self._group: tuple[int, Rows] | None = None

    def batch(self, number: int) -> Rows:
        """Return batch `number` since the beginning of training; batches that follow each other are read fastest.

        Raises:
          MachineError: as `read`.
        """
        start, taken = number * self._batch_size, 0
        chunks = []
        while taken < self._batch_size:
            epoch, at = divmod(start + taken, self._rows)
            # The last window that begins at this row or before, see `_begin`.
            index = ((at + 1) * self._windows - 1) // self._rows
            inside = at - self._begin(index)
            stop = min(inside + self._batch_size - taken, self._begin(index + 1) - self._begin(index))
            # A copy, because the next window overwrites this one.
            chunks.append(join([part(self._read_window(epoch, index), slice(inside, stop))], stop - inside))
            taken += stop - inside
        return chunks[0] if len(chunks) == 1 else join(chunks, self._batch_size)

    def _begin(self, index: int) -> int:
        return index * self._rows // self._windows

    def _random(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *numbers])

    def _read_window(self, epoch: int, index: int) -> Rows:
        if self._shuffled is None or self._window != (epoch, index):
            start, stop = (self._first + self._begin(each) for each in (index, index + 1))
            order = self._random(epoch, self._shard.index + 1, index).permutation(stop - start)
            self._window = None
            most = -(-self._rows // self._windows)
            self._shuffled = join(self._slices(epoch, start, stop), most, order, self._shuffled)
            self._window = epoch, index
        return self._shuffled

    def _slices(self, epoch: int, start: int, stop: int) -> Iterator[Rows]:
        """Yield rows [start, stop) of the row groups in the order of an epoch."""
        order = self._random(epoch, 0).permutation(len(self._sizes))
        ends = np.cumsum(self._sizes[order])
        for at in range(int(np.searchsorted(ends, start, side="right")), len(order)):
            begin = int(ends[at] - self._sizes[order[at]])
            if begin >= stop:
                return
            rows = self._read(int(order[at]))
            yield part(rows, slice(max(start - begin, 0), stop - begin))

    def _read(self, number: int) -> Rows:
        """Read a row group, of which the next window may need the rest."""
        if self._group is None or self._group[0] != number:
            self._group = None
            self._group = number, self._shard.read(number)
        return self._group[1]


def read(group: RowGroup, columns: Sequence[Column]) -> Rows:
    """Read a row group; numbers are views of Arrow's memory.

    Raises:
      MachineError: the file cannot be read, or a column is not as the transform graph describes it.
    """
    batch = row_groups.read(group, [column.name for column in columns])
    return [_column(group.path, column, values) for column, values in zip(columns, batch.columns, strict=True)]


def keys(group: RowGroup, name: str) -> Values:
    """Read a column with a number in each row, or the sums of several numbers, as of labels; [rows].

    Raises:
      MachineError: as `read`, or the rows have no values, or other numbers of values.
    """
    (lists,) = row_groups.read(group, [name]).columns
    values: Values = lists.flatten().to_numpy()
    counts = np.diff(np.asarray(lists.offsets))
    if group.rows and (not counts[0] or (counts != counts[0]).any()):
        raise _unexpected(group.path, name, "1 value in every row", "other numbers of values")
    return values if len(values) == group.rows else values.reshape(group.rows, -1).sum(axis=1)


def stack(rows: Rows, columns: Sequence[Column]) -> Rows:
    """Join the columns of each matrix.

    Args:
      rows: An array for each column, or Lists.
      columns: Describes them.
    """
    stacked: Rows = []
    for members in matrices(columns):
        first, values = rows[members[0]], [rows[each] for each in members]
        is_matrix = columns[members[0]].matrix and not isinstance(first, Lists)
        stacked.append(np.stack(cast("list[Values]", values), axis=1) if is_matrix else first)
    return stacked


def matrices(columns: Sequence[Column]) -> list[list[int]]:
    """Return the numbers of the columns of each array of `Shard.read`."""
    members: dict[tuple[str, str], list[int]] = {}
    for number, column in enumerate(columns):
        members.setdefault((column.matrix, "" if column.matrix else column.name), []).append(number)
    return list(members.values())


def _column(path: str, column: Column, lists: pa.Array) -> Values | Lists:
    expected = pa.large_list(_TYPES[column.dtype])
    if pa.types.is_null(lists.type):
        lists = pa.nulls(len(lists), expected)
    if lists.type != expected:
        raise _unexpected(path, column.name, str(expected), str(lists.type))
    # A missing list has size 0.
    sizes = np.diff(lists.offsets.to_numpy())
    values = lists.flatten().to_numpy(zero_copy_only=column.dtype != "string")
    if column.width is None:
        return Lists(values, _splits(sizes))
    if not (sizes == column.width).all():
        raise _unexpected(path, column.name, f"{column.width} values in every row", "other numbers of values")
    fixed: Values = values if column.width == 1 else values.reshape(len(lists), column.width)
    return fixed


def _splits(sizes: Ints) -> Ints:
    splits: Ints = np.append(0, np.cumsum(sizes))
    return splits


def _empty(rows: int, like: Values) -> Values:
    """Make an array that begins at a multiple of 64 bytes: TensorFlow takes its memory instead of copying it."""
    shape = (rows, *like.shape[1:])
    if like.dtype.hasobject:
        return np.empty(shape, like.dtype)
    size = math.prod(shape) * like.itemsize
    memory = np.empty(size + _ALIGNED, np.uint8)
    start = -memory.__array_interface__["data"][0] % _ALIGNED
    return memory[start : start + size].view(like.dtype).reshape(shape)


def _join_lists(chunks: Sequence[Lists], order: Ints | None) -> Lists:
    sizes = [np.diff(chunk.splits) for chunk in chunks]
    joined = Lists(np.concatenate([chunk.values for chunk in chunks]), _splits(np.concatenate(sizes)))
    return joined if order is None else joined[np.argsort(order)]


def _unexpected(path: str, name: str, expected: str, received: str) -> MachineError:
    return MachineError(
        f"{path}, column {name}: expected {expected}, as the transform graph describes it, received {received}",
        "run Transform again with --no-cache",
    )
