"""Shares rows out between splits by what is in them.

A row lands in the same split whatever the order of files, the size of blocks, the number of workers or the format of
the files. Hashes are made of CRC-32 and an integer mixer, both fixed for all time, value by value and column by column;
a number is the same whether its column holds integers or floats.
"""

from __future__ import annotations

import datetime
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.ingest.config import SplitConfig

U64: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
"""Hashes of rows; shape [rows]."""
Places: TypeAlias = "np.ndarray[Any, np.dtype[np.intp]]"
"""Numbers of splits; shape [rows]. LEFT_OUT is a row that goes to none."""
Micros: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
"""Microseconds since 1970 (UTC); shape [rows]."""

LEFT_OUT = -1
_MICRO = 1_000_000
_MOST_BUCKETS = 4_096
"""Of a histogram of times: the borders of a time split are exact to about 1/4,096 of the rows."""


@dataclass(frozen=True)
class Times:
    """A histogram of times, the same whatever the order in which parts of it were merged.

    Attributes:
      shift: a bucket is 2**shift microseconds wide: the least width with which there are at most 4,096 buckets.
      counts: bucket → rows.
    """

    shift: int = 0
    counts: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, times: Micros) -> Times:
        """The histogram of some rows."""
        values, counts = np.unique(times, return_counts=True)
        return cls(0, dict(zip(values.tolist(), counts.tolist(), strict=True)))._narrowed()

    def merge(self, other: Times) -> Times:
        """The histogram of both."""
        shift = max(self.shift, other.shift)
        counts: dict[int, int] = {}
        for one in (self, other):
            for bucket, rows in one.counts.items():
                wide = bucket >> shift - one.shift
                counts[wide] = counts.get(wide, 0) + rows
        return Times(shift, counts)._narrowed()

    def borders(self, shares: Sequence[int]) -> tuple[int, ...]:
        """Where each split but the first one starts, in microseconds, so that the splits get these shares of rows."""
        buckets = sorted(self.counts)
        if not buckets:
            return ()
        before = np.cumsum([0, *(self.counts[bucket] for bucket in buckets)])
        wanted = np.cumsum(shares)[:-1] / sum(shares) * before[-1]
        # The border whose share is nearest; neither the first split nor the last one is left empty.
        last = max(1, len(buckets) - 1)
        places = [min(last, int(np.abs(before[1:] - rows).argmin()) + 1) for rows in wanted]
        return tuple((buckets[place] if place < len(buckets) else buckets[-1] + 1) << self.shift for place in places)

    def _narrowed(self) -> Times:
        shift, counts = self.shift, self.counts
        while len(counts) > _MOST_BUCKETS:
            shift += 1
            halved: dict[int, int] = {}
            for bucket, rows in counts.items():
                halved[bucket >> 1] = halved.get(bucket >> 1, 0) + rows
            counts = halved
        return Times(shift, counts)


@dataclass(frozen=True)
class Unsplit:
    """A row that belongs to no split: where it stands in the block, and why."""

    row: int
    column: str
    reason: str


class Splitter:
    """Finds the split of each row.

    Args:
      config: what decides.
      by: the columns that decide with `by: hash`, where the config names none and not all of them should.
    """

    def __init__(self, config: SplitConfig, by: Sequence[str] = ()) -> None:
        self._config = config
        self._columns = tuple(config.columns) or tuple(by)
        self._parts = config.parts()

    @property
    def needs_borders(self) -> bool:
        """Whether all rows have to be seen before the first one can be placed."""
        return self._config.by == "time"

    def unsplit(self, block: pa.RecordBatch) -> list[Unsplit]:
        """The rows that lack what decides: a time, or a value that is named for a split."""
        if self._config.by not in ("time", "column"):
            return []
        (name,) = self._columns
        column = _column(block, name)
        if self._config.by == "time":
            _, valid = times_of(column)
            expected = "a time (seconds since 1970, or ISO 8601)"
        else:
            valid = self._by_value(column) != LEFT_OUT
            named = sorted(value for part in self._parts.values() for value in _values(part))
            expected = f"a value that data.split names ({', '.join(named[:5])}{', ...' if len(named) > 5 else ''})"
        return [
            Unsplit(int(row), name, f"expected {expected}, received {_shown(column[int(row)])}")
            for row in np.flatnonzero(~valid)
        ]

    def times(self, block: pa.RecordBatch) -> Times:
        """The histogram of the column that decides; for `by: time`."""
        return Times.of(times_of(_column(block, self._columns[0]))[0])

    def places(self, block: pa.RecordBatch, predefined: str | None, borders: Sequence[int]) -> Places:
        """The split of each row, by its number in the config's order.

        Args:
          block: rows none of which is `unsplit`; columns of int64, float32, binary or null, or lists of them.
          predefined: the split that the file stands for, with `by: files`.
          borders: for `by: time`, see `Times.borders`.
        """
        if predefined is not None:
            places: Places = np.full(block.num_rows, list(self._parts).index(predefined), np.intp)
            return places
        if self._config.by == "column":
            return self._by_value(_column(block, self._columns[0]))
        if self._config.by == "time":
            return self._by_time(times_of(_column(block, self._columns[0]))[0], borders)
        shares = [part for part in self._parts.values() if isinstance(part, int)]
        return assign(block, shares, self._columns or None)

    def _by_value(self, column: pa.Array) -> Places:
        places = {value.encode(): place for place, part in enumerate(self._parts.values()) for value in _values(part)}
        coded = as_text(column).dictionary_encode()
        of_word = np.array([places.get(word, LEFT_OUT) for word in coded.dictionary.to_pylist()] + [LEFT_OUT], np.intp)
        found: Places = of_word[np.asarray(coded.indices.fill_null(len(coded.dictionary)))]
        return found

    def _by_time(self, times: Micros, borders: Sequence[int]) -> Places:
        places: Places = np.searchsorted(np.array(borders, np.int64), times, side="right").astype(np.intp)
        starts = np.array([np.iinfo(np.int64).min, *borders], np.int64)
        gap = int(min(self._config.gap, _MOST_SECONDS) * _MICRO)
        places[(places > 0) & (times < starts[places] + gap)] = LEFT_OUT
        return places


def assign(block: pa.RecordBatch, shares: Sequence[int], by: Iterable[str] | None = None) -> Places:
    """The split of each row by its hash.

    Args:
      block: columns of int64, float32, binary or null, or lists of them.
      shares: the share of each split.
      by: the columns that decide; all of them if not given. A row in which all of them are missing belongs to no
        group, and its whole content decides.

    Returns:
      For each row the place of its split in `shares`; shape [rows].
    """
    bounds: U64 = np.cumsum(shares).astype(np.uint64)
    bucket: U64 = hash_rows(block, by) % bounds[-1]
    places: Places = np.searchsorted(bounds, bucket, side="right").astype(np.intp)
    return places


def hash_rows(block: pa.RecordBatch, by: Iterable[str] | None = None) -> U64:
    """A 64-bit hash of each row; missing values add nothing, so a column that is empty throughout changes no hash."""
    total: U64 = np.zeros(block.num_rows, np.uint64)
    present = np.zeros(block.num_rows, bool)
    for name in block.schema.names if by is None else by:
        column = _column(block, name)
        if column.null_count == len(column):
            continue
        hashes = _mix(_hash_values(column) ^ np.uint64(zlib.crc32(name.encode()) << 32))
        if column.null_count or pa.types.is_list(column.type):
            missing = _is_missing(column)
            hashes[missing] = 0
            present |= ~missing
        else:
            present[:] = True
        # A sum, so that the order of the columns does not matter.
        total += hashes
    mixed = _mix(total)
    if by is not None and not present.all():
        mixed = np.where(present, mixed, hash_rows(block))
    return mixed


def times_of(column: pa.Array) -> tuple[Micros, npt.NDArray[np.bool_]]:
    """A column as times: microseconds since 1970, and which rows have one.

    Numbers are seconds since 1970. Texts are ISO 8601: a date, or a date and a time, in UTC unless they name an offset.
    """
    column = _singles(column)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        seconds = np.asarray(column.cast(pa.float64(), safe=False).fill_null(np.nan))
        valid = np.abs(seconds) < _MOST_SECONDS
        return np.where(valid, np.nan_to_num(seconds) * _MICRO, 0).astype(np.int64), valid
    coded = column.dictionary_encode()
    parsed = [_time(word) for word in coded.dictionary.to_pylist()] + [None]
    of_word = np.array([0 if time is None else time for time in parsed], np.int64)
    known = np.array([time is not None for time in parsed])
    places = np.asarray(coded.indices.fill_null(len(coded.dictionary)))
    return of_word[places], known[places]


def as_text(column: pa.Array) -> pa.Array:
    """The values of a column as they would be written in a text file."""
    column = _singles(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.binary())
    return column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())


_MOST_SECONDS = 2.0**43
"""Times beyond this, some 278,000 years from 1970, are none."""
_FRACTION = re.compile(r"\.(\d{1,6})\d*")
_OFFSET = re.compile(r"([+-]\d\d)(\d\d)$")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def _time(word: bytes) -> int | None:
    try:
        text = word.decode().strip()
        try:
            seconds = float(text)
        except ValueError:
            # Before 3.11 Python knew milliseconds and microseconds only, and no offset without a colon.
            whole = _FRACTION.sub(lambda found: f".{found[1]:<06}", text.removesuffix("Z"))
            parsed = datetime.datetime.fromisoformat(_OFFSET.sub(r"\1:\2", whole) if ":" in whole else whole)
        else:
            return int(seconds * _MICRO) if abs(seconds) < _MOST_SECONDS else None
    except ValueError:
        return None
    aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.timezone.utc)
    return (aware - _EPOCH) // datetime.timedelta(microseconds=1)


def _singles(column: pa.Array) -> pa.Array:
    """A column of lists as one of values: a list of one value is that value, any other one is missing."""
    if not pa.types.is_list(column.type):
        return column
    sizes = np.asarray(pc.list_value_length(column).fill_null(0))
    places = np.cumsum(sizes) - sizes
    return column.flatten().take(pa.array(places, mask=sizes != 1))


def _values(part: int | tuple[str, ...]) -> tuple[str, ...]:
    return () if isinstance(part, int) else part


def _shown(value: pa.Scalar) -> str:
    told = value.as_py()
    if told is None:
        return "nothing"
    return repr(told.decode(errors="backslashreplace")[:40] if isinstance(told, bytes) else told)


def _column(block: pa.RecordBatch, name: str) -> pa.Array:
    return block.column(block.schema.get_field_index(name))


def _is_missing(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Where there is no value: a list without values is as good as none."""
    if pa.types.is_list(column.type):
        return np.asarray(pc.list_value_length(column).fill_null(0)) == 0
    return np.asarray(column.is_null())


def _hash_values(column: pa.Array) -> U64:
    """A 64-bit number for each value; that of missing ones means nothing."""
    hashes: U64
    if pa.types.is_list(column.type):
        # Each value with its place in the list, added up; a list of one value is that value.
        flat, sizes = column.flatten(), np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
        ends = np.append(0, np.cumsum(sizes))
        places = np.arange(len(flat)) - np.repeat(ends[:-1], sizes)
        values = _hash_values(flat)
        values = np.where(places > 0, _mix(values + _mix(places.astype(np.uint64))), values)
        sums = np.append(np.uint64(0), np.cumsum(values, dtype=np.uint64))
        hashes = sums[ends[1:]] - sums[ends[:-1]]
        return hashes
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        values = np.asarray(column.fill_null(0)).astype(np.float64)
        values += 0.0  # makes -0.0 the same as 0.0
        if pa.types.is_floating(column.type):
            values[np.isnan(values)] = np.nan  # a NaN has many bit patterns
        hashes = values.view(np.uint64)
    else:
        coded = column.dictionary_encode()
        distinct = np.fromiter(map(zlib.crc32, coded.dictionary.to_pylist()), np.uint64, len(coded.dictionary))
        hashes = distinct[np.asarray(coded.indices.fill_null(0))]
    return hashes


def _mix(values: U64) -> U64:
    """Spreads every bit over all 64 (the finisher of SplitMix64), so that near values get unrelated hashes."""
    mixed: U64 = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
