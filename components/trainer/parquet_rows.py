"""Transformed examples in Parquet files as NumPy arrays: a worker's shard, or its shuffled batches in bounded memory.

This module does not import TensorFlow, which calls it in the process that holds the iterator; see `parquet_source`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.base.errors import MachineError
from components.base.files import is_remote
from components.data import row_groups
from components.data.parallel_reads import read_in_parallel
from components.data.row_groups import RowGroup
from components.features import feature_names
from components.trainer.validation_part import Mask

Values: TypeAlias = npt.NDArray[Any]
"""Arrays of int64, float32, or bytes objects."""
Ints: TypeAlias = npt.NDArray[np.int64]

_ALIGNED = 64
"""Largest alignment of Eigen, in bytes."""
_TYPES = {"int64": pa.int64(), "float32": pa.float32(), "string": pa.large_binary()}


class Column(NamedTuple):
    """A column to read.

    Attributes:
      name: Name of the column.
      dtype: int64, float32 or string.
      width: Number of values per row; None if it varies.
      matrix: Columns with the same text here are read into one array, in their order. If empty, the column is an array.
    """

    name: str
    dtype: str
    width: int | None
    matrix: str = ""


@dataclass(frozen=True)
class Lists:
    """A column whose number of values per row varies.

    Attributes:
      values: Values of all rows, one row after another.
      splits: Position at which each row's values begin, and the end of the last row; shape [rows + 1].
    """

    values: Values
    splits: Ints

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, rows: Ints | slice | Mask) -> Lists:
        starts, ends = self.splits[:-1][rows], self.splits[1:][rows]
        splits = _compute_splits(ends - starts)
        return Lists(self.values[np.repeat(starts - splits[:-1], ends - starts) + np.arange(splits[-1])], splits)


Rows: TypeAlias = "list[Values | Lists]"
"""The values of every column in some rows: shape [rows] for one value per row, [rows, width] for more, or Lists. The
columns of a matrix are one array at the position of the first column: [rows, columns], or [rows, columns, width]."""


def part(rows: Rows, numbers: slice | Mask) -> Rows:
    """Select rows; a slice returns views where possible."""
    return [column[numbers] for column in rows]


def arrays(rows: Rows) -> list[Values]:
    """Return one array per column, and two arrays for Lists: values and splits."""
    return [
        array
        for column in rows
        for array in ((column.values, column.splits) if isinstance(column, Lists) else (column,))
    ]


def join(chunks: Iterable[Rows], count: int, order: Ints | None = None, into: Rows | None = None) -> Rows:
    """Copy rows into one array per column; besides the result, only one chunk is in memory, except for Lists.

    Args:
      chunks: One or more chunks of rows.
      count: Length of the arrays, at least the number of rows.
      order: Permutation with the new position of every row; if None, the rows keep their order.
      into: An earlier result of this length to overwrite, because allocating memory takes longer than the copy.
    """
    joined: Rows = into or []
    lists: list[list[Lists]] = []
    at = 0
    for chunk in chunks:
        joined = joined or [column if isinstance(column, Lists) else _allocate(count, column) for column in chunk]
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
      groups: The row groups of all workers, at least one.
      columns: The columns to read.
      index: Number of the worker.
      count: Number of workers, at most the number of rows.
      masks: The rows to read in each group; if None, all rows.
      folds: The fold of every row in each group, for the column FOLD; None without this column.
    """

    groups: Sequence[RowGroup]
    columns: Sequence[Column]
    index: int
    count: int
    masks: Sequence[Mask] | None = None
    folds: Sequence[Ints] | None = None

    @functools.cached_property
    def sizes(self) -> Ints:
        """Number of rows to read in each group."""
        return np.array([group.rows for group in self.groups] if self.masks is None else [m.sum() for m in self.masks])

    def read(self, number: int) -> Rows:
        """Read a row group; columns of a matrix are stacked.

        A row of a matrix is contiguous, so shuffling and slicing hundreds of columns costs as much as a few columns.

        Raises:
          MachineError: As for `read`.
        """
        stored = [column for column in self.columns if column.name != feature_names.FOLD]
        rows = read(self.groups[number], stored)
        if self.folds is not None:
            rows.insert([column.name for column in self.columns].index(feature_names.FOLD), self.folds[number])
        rows = stack(rows, self.columns)
        return rows if self.masks is None else part(rows, self.masks[number])

    def load(self) -> Rows:
        """Return every `count`-th row of the files, from row `index` on; remote row groups are read in parallel.

        Raises:
          MachineError: As for `read`.
        """
        before = np.cumsum(self.sizes) - self.sizes
        starts = {number: (self.index - before[number]) % self.count for number in range(len(self.sizes))}
        numbers = [number for number, start in starts.items() if start < self.sizes[number]]
        # This thread reads local files fast enough, and other threads would keep the memory of their row groups.
        groups = (read_in_parallel if is_remote(self.groups[0].path) else map)(self.read, numbers)
        chunks = (
            part(rows, slice(starts[number], None, self.count)) for number, rows in zip(numbers, groups, strict=True)
        )
        return join(chunks, len(range(self.index, int(self.sizes.sum()), self.count)))


class ShuffledShard:
    """The rows of a worker in a random order that depends only on the seed and the worker.

    Every epoch puts the row groups into a new order, and every worker takes the same number of consecutive rows from
    it. A worker reads them in windows of equal size, and shuffles the rows of a window. The row groups of a window
    follow from their numbers of rows, so what is read does not depend on what was read before.

    While the batches of a window are used, the next window is read in another thread, several row groups in parallel,
    so that the latency of remote files is hidden. Two windows and these row groups are in memory.

    Args:
      shard: The examples.
      seed: Seed of the order.
      buffer: Maximum number of rows in a window; larger windows shuffle better.
    """

    def __init__(self, shard: Shard, seed: int, buffer: int) -> None:
        self._shard, self._seed = shard, seed
        self._sizes = shard.sizes
        total = int(self._sizes.sum())
        self._first, last = (total * worker // shard.count for worker in (shard.index, shard.index + 1))
        self._rows = last - self._first
        self._windows = -(-self._rows // buffer)
        self._window: tuple[int, int] | None = None
        """Epoch of the window in memory, and number of the window in the epoch."""
        self._shuffled: Rows | None = None
        """The rows of the window, in random order; the last row may be unset, because window sizes differ by one."""
        self._next: tuple[tuple[int, int], Future[Rows]] | None = None
        """Epoch and number of the window that is read in advance, and its rows."""
        self._thread = ThreadPoolExecutor(1)
        """Reads the windows. At the end of the process, it cannot start further reads, so it ends soon."""
        self._group: tuple[int, Rows] | None = None

    def read(self, start: int, stop: int) -> Rows:
        """Return rows [start, stop) since the beginning of training; reading successive rows is fastest.

        Raises:
          MachineError: As for the function `read`.
        """
        chunks, position = [], start
        while position < stop:
            epoch, at = divmod(position, self._rows)
            # Find the last window that begins at this row or before, see `_begin`.
            index = ((at + 1) * self._windows - 1) // self._rows
            inside = at - self._begin(index)
            count = min(stop - position, self._begin(index + 1) - self._begin(index) - inside)
            # Copy the rows, because the next window overwrites them.
            chunks.append(join([part(self._read_window(epoch, index), slice(inside, inside + count))], count))
            position += count
        return chunks[0] if len(chunks) == 1 else join(chunks, stop - start)

    def _begin(self, index: int) -> int:
        return index * self._rows // self._windows

    def _random(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *numbers])

    def _read_window(self, epoch: int, index: int) -> Rows:
        if self._shuffled is None or self._window != (epoch, index):
            if self._next is None or self._next[0] != (epoch, index):
                self._next = (epoch, index), self._thread.submit(self._shuffle_window, epoch, index, None)
            used, reading = self._shuffled, self._next[1]
            # If reading fails, the next call tries again.
            self._window = self._shuffled = self._next = None
            self._window, self._shuffled = (epoch, index), reading.result()
            following = (epoch, index + 1) if index + 1 < self._windows else (epoch + 1, 0)
            self._next = following, self._thread.submit(self._shuffle_window, *following, used)
        return self._shuffled

    def _shuffle_window(self, epoch: int, index: int, into: Rows | None) -> Rows:
        """Read a window, and shuffle its rows into the arrays of a window that is no longer used."""
        start, stop = (self._first + self._begin(window) for window in (index, index + 1))
        order = self._random(epoch, self._shard.index + 1, index).permutation(stop - start)
        most = -(-self._rows // self._windows)
        return join(self._read_slices(epoch, start, stop), most, order, into)

    def _read_slices(self, epoch: int, start: int, stop: int) -> Iterator[Rows]:
        """Yield rows [start, stop) of the row groups in the order of an epoch."""
        order = self._random(epoch, 0).permutation(len(self._sizes))
        ends = np.cumsum(self._sizes[order])
        begins = ends - self._sizes[order]
        positions = np.flatnonzero((ends > start) & (begins < stop))
        kept, self._group = self._group, None

        def read(number: int) -> Rows:
            return kept[1] if kept and kept[0] == number else self._shard.read(number)

        numbers = order[positions].tolist()
        for at, number, rows in zip(positions, numbers, read_in_parallel(read, numbers), strict=True):
            # The next window may need the rest of the last row group.
            self._group = number, rows
            yield part(rows, slice(max(start - int(begins[at]), 0), stop - int(begins[at])))


def read(group: RowGroup, columns: Sequence[Column]) -> Rows:
    """Read a row group; arrays of numbers are views of Arrow's memory.

    Raises:
      MachineError: If the file cannot be read, or a column is not as the transform graph describes it.
    """
    batch = row_groups.read(group, [column.name for column in columns])
    return [_parse_column(group.path, column, values) for column, values in zip(columns, batch.columns, strict=True)]


def keys(group: RowGroup, *names: str) -> Values:
    """Read a column of numbers, or the sums of several numbers per row, such as labels; [rows].

    With several names, the columns are stacked; [rows, columns].

    Raises:
      MachineError: As for `read`, or if the rows differ in their number of values, or are empty.
    """
    columns = [_read_keys(group, name) for name in names]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _read_keys(group: RowGroup, name: str) -> Values:
    (lists,) = row_groups.read(group, [name]).columns
    values: Values = lists.flatten().to_numpy()
    counts = np.diff(np.asarray(lists.offsets))
    if group.rows and (not counts[0] or (counts != counts[0]).any()):
        raise _mismatch_error(group.path, name, "1 value in every row", "other numbers of values")
    return values if len(values) == group.rows else values.reshape(group.rows, -1).sum(axis=1)


def stack(rows: Rows, columns: Sequence[Column]) -> Rows:
    """Join the columns of every matrix.

    Args:
      rows: An array or Lists for every column.
      columns: The columns.
    """
    stacked: Rows = []
    for members in matrices(columns):
        first, values = rows[members[0]], [rows[member] for member in members]
        is_matrix = columns[members[0]].matrix and not isinstance(first, Lists)
        stacked.append(np.stack(cast("list[Values]", values), axis=1) if is_matrix else first)
    return stacked


def matrices(columns: Sequence[Column]) -> list[list[int]]:
    """Return the numbers of the columns in each array of `Shard.read`."""
    members: dict[tuple[str, str], list[int]] = {}
    for number, column in enumerate(columns):
        members.setdefault((column.matrix, "" if column.matrix else column.name), []).append(number)
    return list(members.values())


def _parse_column(path: str, column: Column, lists: pa.Array) -> Values | Lists:
    expected = pa.large_list(_TYPES[column.dtype])
    if pa.types.is_null(lists.type):
        lists = pa.nulls(len(lists), expected)
    if lists.type != expected:
        raise _mismatch_error(path, column.name, str(expected), str(lists.type))
    # A missing list has size 0.
    sizes = np.diff(lists.offsets.to_numpy())
    values = lists.flatten().to_numpy(zero_copy_only=column.dtype != "string")
    if column.width is None:
        return Lists(values, _compute_splits(sizes))
    if not (sizes == column.width).all():
        raise _mismatch_error(path, column.name, f"{column.width} values in every row", "other numbers of values")
    fixed: Values = values if column.width == 1 else values.reshape(len(lists), column.width)
    return fixed


def _compute_splits(sizes: Ints) -> Ints:
    splits: Ints = np.append(0, np.cumsum(sizes))
    return splits


def _allocate(rows: int, like: Values) -> Values:
    """Create an array that begins at a multiple of 64 bytes, so that TensorFlow uses its memory without a copy."""
    shape = (rows, *like.shape[1:])
    if like.dtype.hasobject:
        return np.empty(shape, like.dtype)
    size = math.prod(shape) * like.itemsize
    memory = np.empty(size + _ALIGNED, np.uint8)
    start = -memory.__array_interface__["data"][0] % _ALIGNED
    return memory[start : start + size].view(like.dtype).reshape(shape)


def _join_lists(chunks: Sequence[Lists], order: Ints | None) -> Lists:
    sizes = [np.diff(chunk.splits) for chunk in chunks]
    joined = Lists(np.concatenate([chunk.values for chunk in chunks]), _compute_splits(np.concatenate(sizes)))
    return joined if order is None else joined[np.argsort(order)]


def _mismatch_error(path: str, name: str, expected: str, received: str) -> MachineError:
    return MachineError(
        f"{path}, column {name}: expected {expected}, as the transform graph describes it, received {received}",
        "run Transform again with --no-cache",
    )
