"""Data structures that readers pass to writers: ranges of files, blocks of rows, bad rows and row counts."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.data import file_io
from components.ingest.config import ValueType
from components.ingest.folder_files import suffix
from components.ingest.join_config import JoinConfig

_MAX_REPORTED = 5
"""Maximum number of bad rows that an error names."""
_MAX_QUARANTINED, _MAX_BINARY = 10_000_000, 1 << 10
"""Maximum characters of a text, and maximum bytes of a binary value, that quarantine stores. It stores only the size of
a larger binary value."""
_SMALL = 256 << 10
"""Bytes below which blocks of several files are merged, because every column has a fixed cost, however short it is."""


@dataclass(frozen=True, order=True)
class FileRange:
    """A part of a file that can be read without the other parts.

    Attributes:
      path: Path of the file.
      number: Index of the range in the file, from 0.
      start: Start of the range: an offset in bytes for text, the index of a row group for Parquet.
      stop: Start of the next range; -1 if the range ends at the end of the file.
      split: Predefined split that the file belongs to, if any.
      start_quoted: Whether `start` lies inside quotes; text only.
      stop_quoted: Whether `stop` lies inside quotes; text only.
    """

    path: str
    number: int = 0
    start: int = 0
    stop: int = -1
    split: str | None = None
    start_quoted: bool = False
    stop_quoted: bool = False


@dataclass(frozen=True)
class BlockSource:
    """The origin of consecutive rows of a block.

    Attributes:
      file_range: Range that the rows come from.
      rows: Number of the rows.
      position: Function from the index of one of these rows to its position in the range; see `BadRow`.
    """

    file_range: FileRange
    rows: int
    position: Callable[[int], int]


@dataclass(frozen=True)
class Block:
    """Consecutive rows as they were read.

    Attributes:
      columns: Columns of text (binary, null where missing), or typed columns.
      sources: Origins of the rows.
      records: The rows as serialized records, if the file contains records; binary, shape [rows].
      images: Facts about the images of the rows, with one column per column of images; see `image_facts`.
    """

    columns: pa.RecordBatch
    sources: tuple[BlockSource, ...]
    records: pa.Array | None = None
    images: pa.RecordBatch | None = None

    def origin(self, row: int) -> tuple[FileRange, int]:
        """Return the range that a row came from, and the position of the row in that range."""
        for source in self.sources:
            if row < source.rows:
                return source.file_range, source.position(row)
            row -= source.rows
        raise IndexError(row)


@dataclass(frozen=True, order=True)
class BadRow:
    """A row that cannot be ingested.

    Attributes:
      path: Path of the file.
      range_number: Number of the range in the file.
      position: Number of the row in the range, from 1, where the header's lines count in the first range; or the offset
        of a record in bytes.
      reason: What was expected and what was received.
      column: Name of the column with the wrong value. None if the reason is not a single value.
      content: The row as text, or column name → field.
    """

    path: str
    range_number: int
    position: int
    reason: str
    column: str | None = None
    content: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class ReaderProperties:
    """Properties of the rows of a format.

    Attributes:
      position_unit: Unit of a row's position: `row`, or `offset` in bytes.
      encoding: Encoding of text, whose column types must be inferred. None if values are typed.
      decimal: Decimal sign of numbers in text, a point or a comma.
      key_columns: Columns whose hash assigns a row to a split unless the config names columns; () for all columns.
      files: Columns of encoded files. The reader limits their size, and their bytes are not text.
      joined: Column from a side table → its type. Such columns do not influence splits and samples, so that a row stays
        in its split if a table is added or changes.
    """

    position_unit: str = "row"
    encoding: str | None = None
    decimal: str = "."
    key_columns: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    joined: Mapping[str, ValueType] = field(default_factory=dict)


class Reader(Protocol):
    """Reads files of one format."""

    properties: ReaderProperties

    def first_range(self, path: str, split: str | None) -> FileRange:
        """Return a range at the start of a file, which serves to guess the types of the columns."""

    def ranges(self, path: str, split: str | None) -> list[FileRange]:
        """Divide a file into ranges that are large enough for one worker."""

    def read(self, file_range: FileRange, row_log: RowLog) -> Iterator[Block]:
        """Yield the rows of a range; report the number of rows and the bad rows to the log."""


@dataclass(frozen=True)
class Matches:
    """Counts of the rows that a join read.

    Attributes:
      rows: Number of rows.
      matched: Number of rows with a match in the side table.
      example: The keys of a row without a match and of a row of the side table; "" if all rows match.
    """

    rows: int = 0
    matched: int = 0
    example: str = ""

    def merge(self, other: Matches) -> Matches:
        """Return the sum of two counts."""
        examples = [text for text in (self.example, other.example) if text]
        return Matches(self.rows + other.rows, self.matched + other.matched, min(examples, default=""))


@dataclass(frozen=True)
class RowCounts:
    """Counts of the rows of some ranges, and their first bad rows.

    Attributes:
      positions: (path, number) of a range → number of positions in it, including the lines of a header.
      rows: Number of rows that were read, including bad rows.
      rows_by_suffix: Suffix of the files' names → number of rows.
      bad: Number of bad rows.
      unselected: Number of rows that `data.where` does not select.
      quarantined: (path, number) of a range → files with its bad rows.
      first_bad: The first few bad rows.
      matches: Index of a join in `data.join` → counts of its rows.
    """

    positions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    rows: int = 0
    bad: int = 0
    quarantined: Mapping[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    first_bad: tuple[BadRow, ...] = ()
    rows_by_suffix: Mapping[str, int] = field(default_factory=dict)
    unselected: int = 0
    matches: Mapping[int, Matches] = field(default_factory=dict)

    def merge(self, other: RowCounts) -> RowCounts:
        """Return the sum of two counts."""
        # Several workers share a range if the rows come from a query.
        quarantined = dict(self.quarantined)
        for key, files in other.quarantined.items():
            quarantined[key] = (*quarantined.get(key, ()), *files)
        return RowCounts(
            {**self.positions, **other.positions},
            self.rows + other.rows,
            self.bad + other.bad,
            quarantined,
            tuple(sorted([*self.first_bad, *other.first_bad])[:_MAX_REPORTED]),
            dict(Counter(self.rows_by_suffix) + Counter(other.rows_by_suffix)),
            self.unselected + other.unselected,
            _merge_matches(self.matches, other.matches),
        )

    def matches_of(self, joins: Sequence[JoinConfig]) -> tuple[Matches, ...]:
        """Return the counts of every join, in the order of `data.join`."""
        return tuple(self.matches.get(number, Matches()) for number in range(len(joins)))

    def files_by_suffix(self) -> dict[str, dict[str, int]]:
        """Return suffix of the files' names → number of `files` and of `rows`."""
        files = Counter(suffix(path) for path in {path for path, _ in self.positions})
        return {name: {"files": count, "rows": self.rows_by_suffix.get(name, 0)} for name, count in files.items()}

    def positions_before(self, path: str, range_number: int) -> int:
        """Return the number of positions of a file that come before a range."""
        return sum(self.positions[path, number] for number in range(range_number))

    def position_in_file(self, bad: BadRow) -> int:
        """Return the position of a bad row in the file instead of in the range."""
        return bad.position + self.positions_before(bad.path, bad.range_number)


class RowLog:
    """Counts the rows of one worker, and writes bad rows to files, one file per range.

    Args:
      folder: Folder of the files. If None, bad rows are only counted.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._positions: dict[tuple[str, int], int] = {}
        self._rows = self._bad = self._unselected = 0
        self._by_suffix: Counter[str] = Counter()
        self._matches: dict[int, Matches] = {}
        self._quarantined: dict[tuple[str, int], tuple[str, ...]] = {}
        self._first_bad: list[BadRow] = []
        self._file: tuple[tuple[str, int], IO[bytes]] | None = None

    def add_range(self, file_range: FileRange, rows: int, positions: int | None = None) -> None:
        """Count the rows of a range. By default a row is one position; otherwise pass the number of positions."""
        self._rows += rows
        self._by_suffix[suffix(file_range.path)] += rows
        self._positions[file_range.path, file_range.number] = rows if positions is None else positions

    def add_unselected(self, rows: int) -> None:
        """Count rows that `data.where` does not select."""
        self._unselected += rows

    def add_matches(self, join: int, matches: Matches) -> None:
        """Count rows of a join."""
        self._matches = _merge_matches(self._matches, {join: matches})

    def add_bad_row(self, bad: BadRow) -> None:
        """Count a bad row, and write it to the file for its range."""
        self._bad += 1
        if len(self._first_bad) < _MAX_REPORTED or bad < self._first_bad[-1]:
            self._first_bad = sorted([*self._first_bad, bad])[:_MAX_REPORTED]
        if self._folder is not None:
            entry = {"position": bad.position, "column": bad.column, "reason": bad.reason, "content": bad.content}
            self._open_file((bad.path, bad.range_number), self._folder).write(json.dumps(entry).encode() + b"\n")

    def close(self) -> RowCounts:
        """Close the files and return the counts."""
        if self._file:
            self._file[1].close()
        self._file = None
        return RowCounts(
            self._positions,
            self._rows,
            self._bad,
            self._quarantined,
            tuple(self._first_bad),
            dict(self._by_suffix),
            self._unselected,
            self._matches,
        )

    def _open_file(self, key: tuple[str, int], folder: str) -> IO[bytes]:
        """Return the open file for the bad rows of a range."""
        if self._file and self._file[0] == key:
            return self._file[1]
        if self._file:
            self._file[1].close()
        path = file_io.join(folder, f"bad-{uuid.uuid4().hex}.jsonl")
        self._quarantined[key] = (*self._quarantined.get(key, ()), path)
        self._file = key, file_io.create(path)
        return self._file[1]


def describe_matches(joins: Sequence[JoinConfig], matches: Sequence[Matches]) -> list[dict[str, Any]]:
    """Return the counts of joins for records: `path` of the side table, `rows` of the data and rows that `matched`."""
    return [
        {"path": join.path, "rows": counts.rows, "matched": counts.matched}
        for join, counts in zip(joins, matches, strict=True)
    ]


def _merge_matches(first: Mapping[int, Matches], second: Mapping[int, Matches]) -> dict[int, Matches]:
    joins = {**first, **second}
    return {join: first.get(join, Matches()).merge(second.get(join, Matches())) for join in joins}


def merge_small(blocks: Iterable[Block]) -> Iterator[Block]:
    """Merge consecutive small blocks if they have the same columns and the same predefined split."""
    pending: list[Block] = []
    size = 0
    for block in blocks:
        if pending and not _can_merge(pending[0], block):
            yield _concatenate(pending)
            pending, size = [], 0
        pending.append(block)
        size += block.columns.nbytes
        if size >= _SMALL:
            yield _concatenate(pending)
            pending, size = [], 0
    if pending:
        yield _concatenate(pending)


def drop_rows(block: Block, rows: Iterable[int]) -> Block:
    """Return a block without the rows at these indices. The remaining rows keep their origin."""
    keep = np.ones(block.columns.num_rows, bool)
    keep[list(rows)] = False
    mask = pa.array(keep)
    columns = [column.filter(mask) for column in block.columns.columns]
    ends = np.cumsum([0, *(source.rows for source in block.sources)])
    sources = []
    for source, start, stop in zip(block.sources, ends[:-1], ends[1:], strict=True):
        remaining = np.flatnonzero(keep[start:stop])
        sources.append(BlockSource(source.file_range, len(remaining), _RemainingPosition(source.position, remaining)))
    batch = pa.RecordBatch.from_arrays(columns, block.columns.schema.names)
    records = None if block.records is None else block.records.filter(mask)
    return Block(batch, tuple(sources), records, None if block.images is None else block.images.filter(mask))


def without_bad_rows(block: Block, bad: Mapping[int, tuple[str, str]], row_log: RowLog) -> Block:
    """Report rows with bad values to the log, and return the block without these rows; see `report_bad_rows`."""
    report_bad_rows(block, bad, row_log)
    return drop_rows(block, bad)


def report_bad_rows(block: Block, bad: Mapping[int, tuple[str, str]], row_log: RowLog) -> None:
    """Report rows with bad values to the log.

    Args:
      block: Block with all rows.
      bad: Index of a row → name of the column with the bad value, and what was expected and received.
      row_log: Log to report to.
    """
    for row, (column, reason) in sorted(bad.items()):
        origin, position = block.origin(row)
        content = {
            name: _to_text(block.columns.column(index)[row].as_py())
            for index, name in enumerate(block.columns.schema.names)
        }
        row_log.add_bad_row(BadRow(origin.path, origin.number, position, reason, column, content))


def _to_text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return _decode(value)
    if isinstance(value, list):
        value = [_decode(item) if isinstance(item, bytes) and len(item) > _MAX_BINARY else item for item in value]
    return str(value)[:_MAX_QUARANTINED]


def _decode(value: bytes) -> str:
    try:
        return value.decode()[:_MAX_QUARANTINED]
    except UnicodeDecodeError:
        # The escaped bytes of an image would take four times its size.
        return f"{len(value):,} bytes" if len(value) > _MAX_BINARY else value.decode(errors="backslashreplace")


@dataclass(frozen=True)
class _RemainingPosition:
    """The function `position` of a source after some of its rows were dropped. It is a class so that it can be pickled.

    Attributes:
      position: The function before the rows were dropped.
      rows: The former indices of the remaining rows; shape [rows].
    """

    position: Callable[[int], int]
    rows: npt.NDArray[np.intp]

    def __call__(self, row: int) -> int:
        return self.position(int(self.rows[row]))


def _can_merge(first: Block, second: Block) -> bool:
    same_split = first.sources[0].file_range.split == second.sources[0].file_range.split
    return same_split and first.columns.schema == second.columns.schema


def _concatenate(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    records = [block.records for block in blocks if block.records is not None]
    images = [block.images for block in blocks if block.images is not None]
    return Block(
        _concatenate_batches([block.columns for block in blocks]),
        tuple(source for block in blocks for source in block.sources),
        pa.concat_arrays(records) if records else None,
        _concatenate_batches(images) if images else None,
    )


def _concatenate_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    names = batches[0].schema.names
    columns = [pa.concat_arrays([batch.column(index) for batch in batches]) for index in range(len(names))]
    return pa.RecordBatch.from_arrays(columns, names)
