"""One worker's share of the rows: read, checked, split and written, while the types of the columns are being found.

Types are only known when all rows have been seen. So the first pass guesses them from a few rows, writes the examples
at once, and sees whether the guess holds. If it does not, anywhere, or if a split by time has to know all times first,
a second pass writes them, with what the first one found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from components.ingest import columns, encode, shards
from components.ingest.columns import KINDS, Columns, Kind
from components.ingest.config import IngestConfig
from components.ingest.rows import Account, BadRow, Block, Ledger, Piece, Reader, Traits, together, without
from components.ingest.shards import Shard
from components.ingest.split import LEFT_OUT, Splitter, Times
from components.ingest.tfrecord import frame_head


@dataclass(frozen=True)
class Plan:
    """What every worker is told.

    Attributes:
      config: the section of the config.
      traits: what the rows are like.
      folder: where shards and bad rows go, under temporary names.
      guess: the kinds of the columns, from a few rows.
    """

    config: IngestConfig
    traits: Traits
    folder: str
    guess: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def given(self) -> dict[str, Kind]:
        """The kinds that the config names."""
        return {name: KINDS[type_] for name, type_ in self.config.types.items()}


@dataclass(frozen=True)
class Findings:
    """What the first pass found out about the rows of one worker, or of several.

    Attributes:
      account: how many rows there are, and which cannot be taken.
      kinds: of the columns.
      times: of the rows, for a split by time.
      written: the kinds that the examples were written with; None if they were not, or not all with the same ones.
    """

    account: Account = field(default_factory=Account)
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    times: Times = field(default_factory=Times)
    written: Mapping[str, Kind] | None = field(default_factory=dict)

    def merge(self, other: Findings) -> Findings:
        """The findings of both."""
        return Findings(
            self.account.merge(other.account),
            columns.merge([self.kinds, other.kinds]),
            self.times.merge(other.times),
            _agreed(self.written, other.written),
        )

    @property
    def final(self) -> bool:
        """Whether what the first pass wrote can stay as it is."""
        written = self.written
        return written is not None and all(
            kind in (Kind.MISSING, written.get(name)) for name, kind in self.kinds.items()
        )


@dataclass(frozen=True)
class Result:
    """What one worker has done in one pass.

    Attributes:
      findings: see there; empty after a second pass.
      shards: what it wrote.
      left_out: how many rows go to no split, because they lie in a gap.
    """

    findings: Findings
    shards: tuple[Shard, ...]
    left_out: int


class Share:
    """Takes blocks of rows, one after the other; call `close` to get what came of them.

    Args:
      plan: see there.
      found: what the first pass found, if this is the second one.
    """

    def __init__(self, plan: Plan, found: Findings | None = None) -> None:
        self._plan, self._found = plan, found
        guess = plan.guess if found is None else found.kinds
        known = None if found is None else found.kinds
        self._columns = Columns(plan.given, guess, plan.traits.encoding, known)
        self._splitter = Splitter(plan.config.split, plan.traits.decisive)
        self._borders: tuple[int, ...] = ()
        if found is not None and self._splitter.needs_borders:
            shares = [part for part in plan.config.split.parts().values() if isinstance(part, int)]
            self._borders = found.times.borders(shares)
        self._ledger = Ledger(plan.folder if found is None else None)
        self._times = Times()
        self._writer: shards.Writer | None = None
        if found is not None or not self._splitter.needs_borders:
            self._writer = shards.Writer(plan.folder, plan.config.split.names())
        self._left_out = 0

    def read(self, pieces: Iterable[Piece], reader: Reader) -> None:
        """Reads pieces of files."""
        blocks = itertools.chain.from_iterable(reader.read(piece, self._ledger) for piece in pieces)
        for block in together(blocks):
            self._take(block)

    def take(self, block: Block) -> None:
        """Takes rows that were read elsewhere."""
        for segment in block.segments:
            self._ledger.read(segment.piece, segment.rows)
        self._take(block)

    def close(self) -> Result:
        """Completes what was written."""
        written = self._columns.target if self._writer else None
        account = self._ledger.close()
        done = tuple(self._writer.close()) if self._writer else ()
        if self._found is not None:
            return Result(Findings(), done, self._left_out)
        kinds = {name: kind for name, kind in self._columns.kinds.items() if name not in self._plan.traits.hidden}
        return Result(Findings(account, kinds, self._times, written), done, self._left_out)

    def _take(self, block: Block) -> None:
        decisive = self._decisive(block.columns)
        bad: dict[int, tuple[str, str]] = {}
        converted: pa.RecordBatch | None = None
        if decisive is not None:
            bad = {one.row: (one.column, one.reason) for one in self._splitter.unsplit(decisive)}
        if not bad:
            # Only now, so that a row that cannot be taken has no say in the types.
            converted, misfits = self._columns.take(block.columns)
            bad = {misfit.row: (misfit.column, misfit.reason) for misfit in reversed(misfits)}
        if bad:
            for row, (column, reason) in sorted(bad.items()):
                piece, place = block.origin(row)
                content = _content(block.columns, row)
                self._ledger.bad(BadRow(piece.path, piece.number, place, reason, column, content))
            rest = without(block, bad)
            if rest.columns.num_rows:
                self._take(rest)
            return
        if self._found is None and self._splitter.needs_borders:
            self._times = self._times.merge(self._splitter.times(decisive))
        if converted is None and self._writer:
            self._writer.discard()
            self._writer = None
        if converted is not None and self._writer:
            self._write(block, converted, decisive, self._writer)

    def _write(
        self, block: Block, converted: pa.RecordBatch, decisive: pa.RecordBatch | None, writer: shards.Writer
    ) -> None:
        first = block.segments[0].piece
        looked_at = converted if decisive is None else decisive
        places = self._splitter.places(looked_at, first.split, self._borders)
        self._left_out += int(np.count_nonzero(places == LEFT_OUT))
        if block.records is None:
            records = encode.encode(converted, frame_head, shards.ROOM)
        else:
            records = shards.framed(block.records)
        writer.write(records, places, (first.path, first.number))

    def _decisive(self, block: pa.RecordBatch) -> pa.RecordBatch | None:
        """The one column that decides about the split, if one does: its values as they are read.

        What type the column gets, which is not known before the end, must not matter; nor must float32, which is
        exact to about two minutes where it holds seconds since 1970.
        """
        split = self._plan.config.split
        if split.by not in ("time", "column"):
            return None
        (name,) = split.columns
        column = block.column(block.schema.get_field_index(name))
        if not self._plan.traits.encoding and not pa.types.is_floating(column.type):
            alone = pa.RecordBatch.from_arrays([column], [name])
            converted, _ = Columns(self._plan.given, {}, None).take(alone)
            if converted is None:
                return None
            column = converted.column(0)
        return pa.RecordBatch.from_arrays([column], [name])


def guess(plan: Plan, pieces: Iterable[Piece], reader: Reader) -> dict[str, Kind]:
    """The kinds of the columns in the first rows of some pieces."""
    found = Columns(plan.given, {}, plan.traits.encoding)
    ledger = Ledger(None)
    for piece in pieces:
        for block in itertools.islice(reader.read(piece, ledger), 1):
            _, misfits = found.take(block.columns)
            if misfits:
                found.take(without(block, {misfit.row for misfit in misfits}).columns)
    return found.kinds


def _agreed(one: Mapping[str, Kind] | None, other: Mapping[str, Kind] | None) -> Mapping[str, Kind] | None:
    if one is None or other is None or any(one[name] != other[name] for name in one.keys() & other.keys()):
        return None
    return {**one, **other}


def _content(block: pa.RecordBatch, row: int) -> dict[str, str | None]:
    """A row as text, by column."""
    return {name: _text(block.column(at)[row].as_py()) for at, name in enumerate(block.schema.names)}


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
