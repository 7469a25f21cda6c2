"""Assign rows to splits by their content.

The split of a row does not depend on the order of files, the size of blocks, the number of workers or the format of the
files. The hash of a row is computed from CRC-32 and an integer mixer, value by value and column by column, and must
never change. A number has the same hash in a column of integers and in a column of floats.

The label must not influence the hash. If the rows of a table repeat, as in a table of categories, one split could
otherwise get the rows of some features with label 0, and the other split the rows of the same features with label 1.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.data.date_texts import Unit, parse_date
from components.ingest.config import SplitConfig
from components.ingest.number_texts import parse_number
from components.ingest.text_hash import crc32
from components.ingest.within_split import GroupBorders, RowOrder

U64: TypeAlias = npt.NDArray[np.uint64]
"""Hashes of rows; shape [rows]."""
SplitIndices: TypeAlias = npt.NDArray[np.intp]
"""Indices of splits, in the order of the config, or LEFT_OUT for a row that is left out; shape [rows]."""
Micros: TypeAlias = npt.NDArray[np.int64]
"""Microseconds since 1970 (UTC); shape [rows]."""

LEFT_OUT = -1
_MICRO = 1_000_000
_MOST_BUCKETS = 4_096
"""Maximum number of buckets of a time histogram, so the borders of a split by time are exact to about 1/4,096 of the
rows."""


@dataclass(frozen=True)
class TimeHistogram:
    """A histogram of times that does not depend on the order in which its parts were merged.

    Attributes:
      shift: Buckets are 2**shift microseconds wide, the smallest width that needs at most 4,096 buckets.
      counts: Bucket → number of rows.
    """

    shift: int = 0
    counts: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def from_times(cls, times: Micros) -> TimeHistogram:
        """Compute the histogram of some rows."""
        values, counts = np.unique(times, return_counts=True)
        return cls(0, dict(zip(values.tolist(), counts.tolist(), strict=True)))._reduce_buckets()

    def merge(self, other: TimeHistogram) -> TimeHistogram:
        """Return the sum of two histograms."""
        shift = max(self.shift, other.shift)
        counts: dict[int, int] = {}
        for histogram in (self, other):
            for bucket, rows in histogram.counts.items():
                wide = bucket >> shift - histogram.shift
                counts[wide] = counts.get(wide, 0) + rows
        return TimeHistogram(shift, counts)._reduce_buckets()

    def borders(self, shares: Sequence[int]) -> tuple[int, ...]:
        """Compute the times at which splits start, so that the splits get the given shares of the rows.

        Returns:
          Start of every split except the first, in microseconds since 1970, ascending. Empty without rows.
        """
        buckets = sorted(self.counts)
        if not buckets:
            return ()
        before = np.cumsum([0, *(self.counts[bucket] for bucket in buckets)])
        ideal = np.cumsum(shares)[:-1] / sum(shares) * before[-1]
        # Choose the border with the nearest share, but do not leave the first or the last split empty.
        last = max(1, len(buckets) - 1)
        chosen = [min(last, int(np.abs(before[1:] - rows).argmin()) + 1) for rows in ideal]
        return tuple((buckets[index] if index < len(buckets) else buckets[-1] + 1) << self.shift for index in chosen)

    def _reduce_buckets(self) -> TimeHistogram:
        shift, counts = self.shift, self.counts
        while len(counts) > _MOST_BUCKETS:
            shift += 1
            halved: dict[int, int] = {}
            for bucket, rows in counts.items():
                halved[bucket >> 1] = halved.get(bucket >> 1, 0) + rows
            counts = halved
        return TimeHistogram(shift, counts)


@dataclass(frozen=True)
class UnassignedRow:
    """A row that does not belong to any split.

    Attributes:
      index: Index of the row in the block.
      column: Name of the column that assigns rows to splits.
      reason: What was expected and what was received.
    """

    index: int
    column: str
    reason: str


class Splitter:
    """Assigns rows to splits.

    Args:
      config: Section `data.split` of the config.
      by: Columns to hash with `by: hash` unless the config names columns; () for all columns.
      unhashed: Columns that the hash of whole rows ignores, unless the data has no other columns.
      origin: Column with the time from which the time in `columns` is forecast; for `by: time`. A split then contains
        the rows with an origin in it whose time is not after the first origin of the next split. Other rows are left
        out: their label is not known at an origin that judges the model. None without forecasts.
    """

    def __init__(
        self,
        config: SplitConfig,
        by: Sequence[str] = (),
        unhashed: Collection[str] = (),
        origin: str | None = None,
    ) -> None:
        self._config = config
        self._columns = tuple(config.columns) or tuple(by)
        if origin is not None:
            self._columns = (origin, *self._columns)
        self._unhashed = unhashed
        self._parts = config.parts()

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the config, after the column of the origin if there is one."""
        return self._columns

    @property
    def needs_borders(self) -> bool:
        """Whether all rows must be read before the first row can be assigned."""
        return self._config.by in ("time", "within", "within_time")

    def find_unassigned(self, block: pa.RecordBatch) -> list[UnassignedRow]:
        """Return the rows that lack a valid value in a column that assigns rows to splits, such as a time or a user."""
        if self._config.by == "within_time":
            group, time, *_ = self._columns
            return [*self._find_invalid(block, group, "group"), *self._find_invalid(block, time, "time")]
        if self._config.by in ("time", "column", "within"):
            role = "group" if self._config.by == "within" else self._config.by
            return self._find_invalid(block, self._columns[0], role)
        return []

    def _find_invalid(self, block: pa.RecordBatch, name: str, role: str) -> list[UnassignedRow]:
        column = _column(block, name)
        if role == "group":
            valid, expected = np.asarray(as_text(column).is_valid()), "one value, within whose rows data.split divides"
        elif role == "time":
            _, valid = times_of(column, self._config.unit)
            expected = f"a time ({self._config.unit} since 1970, as data.split.unit says, or ISO 8601)"
        else:
            valid = self._by_value(column) != LEFT_OUT
            values = sorted(value for part in self._parts.values() for value in _values(part))
            expected = f"a value that data.split names ({', '.join(values[:5])}{', ...' if len(values) > 5 else ''})"
        return [
            UnassignedRow(int(row), name, f"expected {expected}, received {_quote(column[int(row)])}")
            for row in np.flatnonzero(~valid)
        ]

    def times(self, block: pa.RecordBatch) -> TimeHistogram:
        """Return the histogram of the time column; for `by: time`."""
        return TimeHistogram.from_times(times_of(_column(block, self._columns[0]), self._config.unit)[0])

    def order(self, block: pa.RecordBatch) -> RowOrder:
        """Return the order of rows within their groups; for `by: within` and `by: within_time`."""
        group, *order_columns = self._columns
        times = np.zeros(block.num_rows, np.int64)
        if self._config.by == "within_time":
            times, _ = times_of(_column(block, order_columns.pop(0)), self._config.unit)
        names = [group, *order_columns]
        # Hash texts: a block of whole numbers may precede a block of words, and 17 must remain the same user.
        texts = pa.RecordBatch.from_arrays([as_text(_column(block, name)) for name in names], names)
        # Include the group: otherwise an item would have the same place in the order, and so the same split, for all
        # users.
        hashes = hash_rows(texts) if order_columns else np.zeros(block.num_rows, np.uint64)
        return RowOrder(hash_rows(texts, [group]), times, hashes)

    def assign(
        self, block: pa.RecordBatch, predefined: str | None, borders: Sequence[int] | GroupBorders
    ) -> SplitIndices:
        """Return the index of every row's split; shape [rows].

        Args:
          block: Rows without unassigned rows; columns of int64, float32, binary or null, or of lists of these.
          predefined: Split that the file belongs to with `by: files`, otherwise None.
          borders: Borders from `TimeHistogram.borders` for `by: time`, or from `within_split.borders` within groups;
            otherwise empty.
        """
        if isinstance(borders, GroupBorders):
            return borders.assign(self.order(block))
        if predefined is not None:
            indices: SplitIndices = np.full(block.num_rows, list(self._parts).index(predefined), np.intp)
            return indices
        if self._config.by == "column":
            return self._by_value(_column(block, self._columns[0]))
        if self._config.by == "time":
            times = [times_of(_column(block, name), self._config.unit)[0] for name in self._columns]
            return self._by_time(times[0], times[-1], borders)
        shares = [part for part in self._parts.values() if isinstance(part, int)]
        return assign_by_hash(block, shares, self._columns, self._unhashed)

    def _by_value(self, column: pa.Array) -> SplitIndices:
        split_of = {value.encode(): index for index, part in enumerate(self._parts.values()) for value in _values(part)}
        coded = as_text(column).dictionary_encode()
        by_code = np.array(
            [split_of.get(word, LEFT_OUT) for word in coded.dictionary.to_pylist()] + [LEFT_OUT], np.intp
        )
        indices: SplitIndices = by_code[np.asarray(coded.indices.fill_null(len(coded.dictionary)))]
        return indices

    def _by_time(self, times: Micros, ends: Micros, borders: Sequence[int]) -> SplitIndices:
        """Assign rows by their times; `ends` are the times of the labels, which differ from `times` in forecasts."""
        indices: SplitIndices = np.searchsorted(np.array(borders, np.int64), times, side="right").astype(np.intp)
        starts = np.array([np.iinfo(np.int64).min, *borders, np.iinfo(np.int64).max], np.int64)
        gap = int(min(self._config.gap, _MOST_GAP) * _MICRO)
        is_in_gap = (indices > 0) & (times < starts[indices] + gap)
        indices[is_in_gap | (ends > starts[indices + 1])] = LEFT_OUT
        return indices


def assign_by_hash(
    block: pa.RecordBatch, shares: Sequence[int], by: Sequence[str] = (), unhashed: Collection[str] = ()
) -> SplitIndices:
    """Assign rows to splits by their hashes.

    Args:
      block: Columns of int64, float32, binary or null, or of lists of these.
      shares: Shares of the splits.
      by: Columns to hash. If empty, all columns. If all of these columns are missing in a row, the row does not belong
        to a group, so all its columns are hashed.
      unhashed: Columns that a hash of all columns ignores, unless the block has no other columns.

    Returns:
      The index of every row's split in `shares`; shape [rows].
    """
    bounds: U64 = np.cumsum(shares).astype(np.uint64)
    bucket: U64 = hash_rows(block, by, unhashed) % bounds[-1]
    indices: SplitIndices = np.searchsorted(bounds, bucket, side="right").astype(np.intp)
    return indices


def hash_rows(block: pa.RecordBatch, by: Sequence[str] = (), unhashed: Collection[str] = ()) -> U64:
    """Compute 64-bit hashes of rows. Missing values are ignored, so an empty column does not change the hashes.

    Args:
      block: Columns of int64, float32, binary or null, or of lists of these.
      by: Columns to hash; see `assign_by_hash`.
      unhashed: Columns that a hash of all columns ignores; see `assign_by_hash`.
    """
    whole = [name for name in block.schema.names if name not in unhashed] or block.schema.names
    hashes, present = _hash_columns(block, by or whole)
    if by and not present.all():
        hashes = np.where(present, hashes, _hash_columns(block, whole)[0])
    return hashes


def _hash_columns(block: pa.RecordBatch, names: Sequence[str]) -> tuple[U64, npt.NDArray[np.bool_]]:
    """Compute the hashes of rows from some columns, and mark the rows with a value in any of these columns."""
    total: U64 = np.zeros(block.num_rows, np.uint64)
    present = np.zeros(block.num_rows, bool)
    for name in names:
        column = _column(block, name)
        if column.null_count == len(column):
            continue
        hashes = mix(_hash_values(column) ^ np.uint64(zlib.crc32(name.encode()) << 32))
        if column.null_count or pa.types.is_list(column.type):
            missing = _is_missing(column)
            hashes[missing] = 0
            present |= ~missing
        else:
            present[:] = True
        # Add the hashes, so that the order of the columns does not matter.
        total += hashes
    return mix(total), present


def times_of(column: pa.Array, unit: Unit = "seconds") -> tuple[Micros, npt.NDArray[np.bool_]]:
    """Convert a column to times.

    Args:
      column: Numbers since 1970 (UTC), or ISO 8601 texts: a date, or a date and a time, in UTC unless they contain an
        offset.
      unit: Unit of the numbers. A time after the year 9999 is invalid, because its unit must be a different one.

    Returns:
      Microseconds since 1970, 0 without a valid time; and whether a row has a valid time, bool of shape [rows].
    """
    column = single_values(column)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        micros = np.asarray(column.cast(pa.float64(), safe=False).fill_null(np.nan)) * MICROS[unit]
        valid = np.abs(micros) < _MOST_MICROS
        return np.where(valid, micros, 0).astype(np.int64), valid
    coded = column.dictionary_encode()
    parsed = [_time(word, unit) for word in coded.dictionary.to_pylist()] + [None]
    by_code = np.array([0 if time is None else time for time in parsed], np.int64)
    valid = np.array([time is not None for time in parsed])
    codes = np.asarray(coded.indices.fill_null(len(coded.dictionary)))
    return by_code[codes], valid[codes]


def as_text(column: pa.Array) -> pa.Array:
    """Return the values of a column as they are written in text files; binary."""
    column = single_values(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.binary())
    return column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())


MICROS: Mapping[Unit, int] = {"seconds": _MICRO, "milliseconds": 1_000, "days": 86_400 * _MICRO}
_MOST_MICROS = 253_402_300_800 * _MICRO
"""The year 10000. Milliseconds that are read as seconds are far beyond it."""
_MOST_GAP = 2.0**43
"""Maximum gap in seconds. The sum of a longer gap and a time could overflow."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _time(word: bytes, unit: Unit) -> int | None:
    try:
        micros = parse_number(word) * MICROS[unit]
    except ValueError:
        parsed = parse_date(word.decode(errors="replace"))
        return None if parsed is None else (parsed - _EPOCH) // timedelta(microseconds=1)
    return int(micros) if abs(micros) < _MOST_MICROS else None


def single_values(column: pa.Array) -> pa.Array:
    """Convert lists to values: a list of one value becomes that value, any other list becomes null."""
    if not pa.types.is_list(column.type):
        return column
    sizes = np.asarray(pc.list_value_length(column).fill_null(0))
    starts = np.cumsum(sizes) - sizes
    return column.flatten().take(pa.array(starts, mask=sizes != 1))


def _values(part: int | tuple[str, ...]) -> tuple[str, ...]:
    return () if isinstance(part, int) else part


def _quote(scalar: pa.Scalar) -> str:
    value = scalar.as_py()
    if value is None:
        return "nothing"
    return repr(value.decode(errors="backslashreplace")[:40] if isinstance(value, bytes) else value)


def _column(block: pa.RecordBatch, name: str) -> pa.Array:
    return block.column(block.schema.get_field_index(name))


def _is_missing(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Mark missing values, and lists without values."""
    if pa.types.is_list(column.type):
        return np.asarray(pc.list_value_length(column).fill_null(0)) == 0
    return np.asarray(column.is_null())


def _hash_values(column: pa.Array) -> U64:
    """Compute 64-bit hashes of values; the hash of a missing value is undefined."""
    hashes: U64
    if pa.types.is_list(column.type):
        # Add the hashes of the values, each mixed with its index. A list with one value has the hash of the value.
        flat, sizes = column.flatten(), np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
        ends = np.append(0, np.cumsum(sizes))
        indices = np.arange(len(flat)) - np.repeat(ends[:-1], sizes)
        values = _hash_values(flat)
        values = np.where(indices > 0, mix(values + mix(indices.astype(np.uint64))), values)
        sums = np.append(np.uint64(0), np.cumsum(values, dtype=np.uint64))
        hashes = sums[ends[1:]] - sums[ends[:-1]]
        return hashes
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        values = np.asarray(column.fill_null(0) if column.null_count else column).astype(np.float64)
        values += 0.0  # turns -0.0 into 0.0
        if pa.types.is_floating(column.type):
            values[np.isnan(values)] = np.nan  # a NaN has many bit patterns
        hashes = values.view(np.uint64)
    else:
        hashes = crc32(column)
    return hashes


def mix(values: U64) -> U64:
    """Mix the bits of 64-bit numbers, so that similar values get unrelated hashes.

    Source: the finalizer of SplitMix64; Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (2014).
    """
    mixed: U64 = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
