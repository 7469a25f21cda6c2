"""What travels from the readers to the writers: pieces of files, blocks of rows, and the rows that cannot be taken."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa

from components.ingest import source

_SHOWN = 5
"""Bad rows that an error names."""
_SMALL = 256 << 10
"""Bytes below which blocks of several files are put together: a column costs some time however short it is."""


@dataclass(frozen=True, order=True)
class Piece:
    """A part of a file that is read on its own.

    Attributes:
      path: the file.
      number: the place among the pieces of the file.
      start: where it begins: bytes in text, a row group in Parquet.
      stop: where the next one begins; -1 at the end of the file.
      split: the predefined split that the file stands for.
      start_quoted: for text: whether `start` lies inside quotes.
      stop_quoted: the same of `stop`.
    """

    path: str
    number: int = 0
    start: int = 0
    stop: int = -1
    split: str | None = None
    start_quoted: bool = False
    stop_quoted: bool = False


@dataclass(frozen=True)
class Segment:
    """Rows of a block that come from one piece: how many, and what place in it each of them has."""

    piece: Piece
    rows: int
    place: Callable[[int], int]


@dataclass(frozen=True)
class Block:
    """Some rows as they were read.

    Attributes:
      columns: text (binary, null where missing), or typed columns.
      segments: where the rows came from.
      records: the rows as serialized records, if that is what the file holds; binary.
    """

    columns: pa.RecordBatch
    segments: tuple[Segment, ...]
    records: pa.Array | None = None

    def origin(self, row: int) -> tuple[Piece, int]:
        """The piece that a row came from, and its place in it."""
        for segment in self.segments:
            if row < segment.rows:
                return segment.piece, segment.place(row)
            row -= segment.rows
        raise IndexError(row)


@dataclass(frozen=True, order=True)
class BadRow:
    """A row that cannot be taken.

    Attributes:
      path: the file.
      piece: the number of the piece of the file.
      place: the row in the piece (the first one is 1; in the first piece the lines of the header count), or the offset
        of a record in bytes.
      reason: what was expected, and what was received.
      column: the column that is to blame.
      content: the row as text, or its fields by column.
    """

    path: str
    piece: int
    place: int
    reason: str
    column: str | None = None
    content: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Traits:
    """What the rows of a format are like.

    Attributes:
      place_is: what the place of a row in its file is: `row`, or `offset` in bytes.
      encoding: of text, whose types have to be found; None if values have types of their own.
      decisive: the columns that a row's split depends on, where the config names none; () for all of them.
      hidden: columns that are no features.
    """

    place_is: str = "row"
    encoding: str | None = None
    decisive: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


class Reader(Protocol):
    """How one format is read."""

    traits: Traits

    def head(self, path: str, split: str | None) -> Piece:
        """The start of a file, to look at its first rows."""

    def cut(self, path: str, split: str | None) -> list[Piece]:
        """The pieces of a file, each fit for one worker."""

    def read(self, piece: Piece, ledger: Ledger) -> Iterator[Block]:
        """The rows of a piece, and into the ledger how many there are, and those that cannot be taken."""


@dataclass(frozen=True)
class Account:
    """What became of the rows of some pieces.

    Attributes:
      spans: (path, number) of a piece → how many places its rows took up (lines of a header included).
      rows: how many rows were read, bad ones included.
      bad: how many of these cannot be taken.
      quarantined: (path, number) of a piece → files with its bad rows.
      first: the first few bad rows.
    """

    spans: Mapping[tuple[str, int], int] = field(default_factory=dict)
    rows: int = 0
    bad: int = 0
    quarantined: Mapping[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    first: tuple[BadRow, ...] = ()

    def merge(self, other: Account) -> Account:
        """The account of both."""
        # The rows of a query are all of one piece, whoever takes them.
        quarantined = dict(self.quarantined)
        for key, files in other.quarantined.items():
            quarantined[key] = (*quarantined.get(key, ()), *files)
        return Account(
            {**self.spans, **other.spans},
            self.rows + other.rows,
            self.bad + other.bad,
            quarantined,
            tuple(sorted([*self.first, *other.first])[:_SHOWN]),
        )

    def before(self, path: str, piece: int) -> int:
        """How many places of a file come before one of its pieces."""
        return sum(self.spans[path, number] for number in range(piece))

    def place(self, bad: BadRow) -> int:
        """The place of a bad row in its file."""
        return bad.place + self.before(bad.path, bad.piece)


class Ledger:
    """Keeps the account of one worker, and writes the bad rows to files, each with those of one piece.

    Args:
      folder: where the files go; without one the bad rows are only counted.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._spans: dict[tuple[str, int], int] = {}
        self._rows = self._bad = 0
        self._quarantined: dict[tuple[str, int], tuple[str, ...]] = {}
        self._first: list[BadRow] = []
        self._file: tuple[tuple[str, int], IO[bytes]] | None = None

    def read(self, piece: Piece, rows: int, span: int | None = None) -> None:
        """Notes that the rows of a piece were read; `span` is how many places they took up, if that is not `rows`."""
        self._rows += rows
        self._spans[piece.path, piece.number] = rows if span is None else span

    def bad(self, bad: BadRow) -> None:
        """Notes a row that cannot be taken."""
        self._bad += 1
        if len(self._first) < _SHOWN or bad < self._first[-1]:
            self._first = sorted([*self._first, bad])[:_SHOWN]
        if self._folder is not None:
            entry = {"place": bad.place, "column": bad.column, "reason": bad.reason, "content": bad.content}
            self._file_of((bad.path, bad.piece), self._folder).write(json.dumps(entry).encode() + b"\n")

    def close(self) -> Account:
        """Completes the files."""
        if self._file:
            self._file[1].close()
        self._file = None
        return Account(self._spans, self._rows, self._bad, self._quarantined, tuple(self._first))

    def _file_of(self, key: tuple[str, int], folder: str) -> IO[bytes]:
        """The file that bad rows of a piece go to."""
        if self._file and self._file[0] == key:
            return self._file[1]
        if self._file:
            self._file[1].close()
        path = source.join(folder, f"bad-{uuid.uuid4().hex}.jsonl")
        self._quarantined[key] = (*self._quarantined.get(key, ()), path)
        self._file = key, source.create(path)
        return self._file[1]


def together(blocks: Iterable[Block]) -> Iterator[Block]:
    """Puts small blocks together, in their order, as long as they have the same columns and go to the same split."""
    held: list[Block] = []
    size = 0
    for block in blocks:
        if held and not _agree(held[0], block):
            yield _joined(held)
            held, size = [], 0
        held.append(block)
        size += block.columns.nbytes
        if size >= _SMALL:
            yield _joined(held)
            held, size = [], 0
    if held:
        yield _joined(held)


def without(block: Block, rows: Iterable[int]) -> Block:
    """A block without some of its rows. Ask for the origin of rows before."""
    keep = np.ones(block.columns.num_rows, bool)
    keep[list(rows)] = False
    mask = pa.array(keep)
    columns = [column.filter(mask) for column in block.columns.columns]
    ends = np.cumsum([0, *(segment.rows for segment in block.segments)])
    segments = []
    for segment, start, stop in zip(block.segments, ends[:-1], ends[1:], strict=True):
        kept = np.flatnonzero(keep[start:stop])
        segments.append(Segment(segment.piece, len(kept), _Kept(segment.place, kept)))
    kept_columns = pa.RecordBatch.from_arrays(columns, block.columns.schema.names)
    return Block(kept_columns, tuple(segments), None if block.records is None else block.records.filter(mask))


@dataclass(frozen=True)
class _Kept:
    place: Callable[[int], int]
    rows: Any

    def __call__(self, row: int) -> int:
        return self.place(int(self.rows[row]))


def _agree(one: Block, other: Block) -> bool:
    same_split = one.segments[0].piece.split == other.segments[0].piece.split
    return same_split and one.columns.schema == other.columns.schema


def _joined(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    columns = [
        pa.concat_arrays([block.columns.column(at) for block in blocks])
        for at in range(len(blocks[0].columns.schema.names))
    ]
    records = [block.records for block in blocks if block.records is not None]
    return Block(
        pa.RecordBatch.from_arrays(columns, blocks[0].columns.schema.names),
        tuple(segment for block in blocks for segment in block.segments),
        pa.concat_arrays(records) if records else None,
    )
