"""Reads, checks, splits and writes the rows of one bundle, while the types of the columns are being inferred.

Types are only known when all rows have been read. So the first pass guesses them from a few rows, writes the examples
at once, and checks whether the guess holds. If it fails anywhere, or if a split by time has to know all times first, a
second pass writes the examples, with the types and times that the first pass found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from components.data import examples
from components.data.missing import without_nan
from components.data.tfrecord_writer import framed_examples, with_frames
from components.ingest import column_types, shard_writer, within_split
from components.ingest.blocks import (
    Block,
    FileRange,
    Reader,
    ReaderProperties,
    RowCounts,
    RowLog,
    drop_rows,
    merge_small,
    without_bad_rows,
)
from components.ingest.column_types import KINDS, ColumnConverter, Kind
from components.ingest.config import IngestConfig, ValueType
from components.ingest.image_table import ImageTable
from components.ingest.shard_writer import Shard
from components.ingest.split_assignment import LEFT_OUT, Splitter, TimeHistogram
from components.ingest.within_split import GroupBorders, RowOrder


@dataclass(frozen=True)
class IngestSettings:
    """The settings that all workers share.

    Attributes:
      config: The section of the config.
      properties: The properties of the rows' format.
      folder: Where shards and bad rows go, under temporary names.
      stored: How the examples are stored.
      guess: The kinds of the columns, guessed from a few rows.
      by_span: Whether a shard holds rows of one span only, and so is the same in each run that reads the span.
    """

    config: IngestConfig
    properties: ReaderProperties
    folder: str
    stored: examples.Format
    guess: Mapping[str, Kind] = field(default_factory=dict)
    by_span: bool = False

    @property
    def configured_kinds(self) -> dict[str, Kind]:
        """The kinds of columns that the config sets."""
        types: dict[str, ValueType] = dict.fromkeys(self.config.csv.formats, "float")
        selected = self.config.columns
        types = {name: type_ for name, type_ in types.items() if not selected or name in selected}
        return {name: KINDS[type_] for name, type_ in {**types, **self.config.types}.items()}


@dataclass(frozen=True)
class FirstPassSummary:
    """What the first pass found out about the rows of one bundle, or of several.

    Attributes:
      counts: How many rows there are, and which are bad.
      kinds: The least kinds that hold all values of the columns.
      times: The times of the rows, for a split by time.
      orders: The order of the rows within their groups, for a split within groups.
      written_kinds: The kinds that the examples were written with; None if they were not written, or not all with the
        same kinds.
    """

    counts: RowCounts = field(default_factory=RowCounts)
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    times: TimeHistogram = field(default_factory=TimeHistogram)
    orders: tuple[RowOrder, ...] = ()
    written_kinds: Mapping[str, Kind] | None = field(default_factory=dict)

    def merge(self, other: FirstPassSummary) -> FirstPassSummary:
        """Return the summary of both."""
        return FirstPassSummary(
            self.counts.merge(other.counts),
            column_types.merge([self.kinds, other.kinds]),
            self.times.merge(other.times),
            self.orders + other.orders,
            _merge_written(self.written_kinds, other.written_kinds),
        )

    @property
    def is_final(self) -> bool:
        """Whether the examples that the first pass wrote have the right types."""
        written = self.written_kinds
        return written is not None and all(
            kind in (Kind.MISSING, written.get(name)) for name, kind in self.kinds.items()
        )


@dataclass(frozen=True)
class BundleResult:
    """The result of one bundle in one pass.

    Attributes:
      summary: Of the first pass; empty after the second.
      shards: The files written.
      left_out: Rows that go to no split, because they lie in a gap between two.
    """

    summary: FirstPassSummary
    shards: tuple[Shard, ...]
    left_out: int


class BundleWriter:
    """Writes the rows of a bundle; call `close` for the result.

    Args:
      settings: The settings that all workers share.
      first_pass: The summary of all rows, if this is the second pass.
    """

    def __init__(self, settings: IngestSettings, first_pass: FirstPassSummary | None = None) -> None:
        self._settings, self._first_pass = settings, first_pass
        guess = settings.guess if first_pass is None else first_pass.kinds
        minimum = None if first_pass is None else first_pass.kinds
        properties = settings.properties
        self._converter = ColumnConverter(
            settings.configured_kinds, guess, properties.encoding, minimum, properties.decimal, properties.files
        )
        self._splitter = Splitter(settings.config.split, properties.key_columns, settings.config.unhashed)
        self._borders: tuple[int, ...] | GroupBorders = ()
        if first_pass is not None and self._splitter.needs_borders:
            shares = [part for part in settings.config.split.parts().values() if isinstance(part, int)]
            by_time = settings.config.split.by == "time"
            self._borders = (
                first_pass.times.borders(shares) if by_time else within_split.borders(first_pass.orders, shares)
            )
        self._row_log = RowLog(settings.folder if first_pass is None else None)
        self._times = TimeHistogram()
        self._orders: list[RowOrder] = []
        self._writer: shard_writer.Writer | None = None
        if first_pass is not None or not self._splitter.needs_borders:
            self._writer = shard_writer.Writer(settings.folder, settings.config.split.names())
        self._left_out = 0

    def read(self, file_ranges: Iterable[FileRange], reader: Reader) -> None:
        """Read and write the rows of some ranges, which are of one span."""
        blocks = itertools.chain.from_iterable(reader.read(file_range, self._row_log) for file_range in file_ranges)
        for block in merge_small(blocks):
            self._process(block)
        if self._settings.by_span and self._writer:
            self._writer.end_shards()

    def write(self, block: Block) -> None:
        """Write rows that were read elsewhere."""
        for source in block.sources:
            self._row_log.add_range(source.file_range, source.rows)
        self._process(block)

    def close(self) -> BundleResult:
        """Close the files and return the result."""
        written = self._converter.output_kinds if self._writer else None
        counts = self._row_log.close()
        shards = tuple(self._writer.close()) if self._writer else ()
        if self._first_pass is not None:
            return BundleResult(FirstPassSummary(), shards, self._left_out)
        summary = FirstPassSummary(counts, self._converter.kinds, self._times, tuple(self._orders), written)
        return BundleResult(summary, shards, self._left_out)

    def _process(self, block: Block) -> None:
        columns = without_nan(block.columns)
        if columns is not block.columns:
            # Records hold NaN as a value: the examples are encoded again.
            block = replace(block, columns=columns, records=None)
        key = self._split_column(block.columns)
        converted: pa.RecordBatch | None = None
        bad = self._oversized(block.columns)
        if not bad and key is not None:
            bad = {row.index: (row.column, row.reason) for row in self._splitter.unassigned(key)}
        if not bad:
            # Only now, so that bad rows do not influence the types.
            converted, invalid = self._converter.convert(block.columns)
            bad = {value.row: (value.column, value.reason) for value in reversed(invalid)}
        if bad:
            rest = without_bad_rows(block, bad, self._row_log)
            if rest.columns.num_rows:
                self._process(rest)
            return
        if self._first_pass is None and self._splitter.needs_borders:
            if self._settings.config.split.by == "time":
                self._times = self._times.merge(self._splitter.times(key))
            else:
                self._orders.append(self._splitter.order(key))
        if converted is None and self._writer:
            self._writer.discard()
            self._writer = None
        if converted is not None and self._writer:
            self._write(block, converted, key, self._writer)

    def _oversized(self, columns: pa.RecordBatch) -> dict[int, tuple[str, str]]:
        most, files = self._settings.config.bad_rows.max_cell_bytes, self._settings.properties.files
        found = column_types.oversized(columns, most, files)
        return {value.row: (value.column, value.reason) for value in reversed(found)}

    def _write(
        self, block: Block, converted: pa.RecordBatch, key: pa.RecordBatch | None, writer: shard_writer.Writer
    ) -> None:
        first = block.sources[0].file_range
        indices = self._splitter.assign(converted if key is None else key, first.split, self._borders)
        self._left_out += int(np.count_nonzero(indices == LEFT_OUT))
        rows: pa.Array | pa.RecordBatch = converted
        if self._settings.stored == "tfrecord":
            rows = framed_examples(converted) if block.records is None else with_frames(block.records)
        writer.write(rows, indices, (first.path, first.number), block.images)

    def _split_column(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the columns that assign rows to splits, if the config names some: their values as they are read.

        The inferred type of a column, which is only known at the end, must not matter; nor must float32, which is
        exact to about two minutes for seconds since 1970.
        """
        split = self._settings.config.split
        if split.by not in ("time", "column", "within", "within_time"):
            return None
        columns = [self._as_read(batch.column(batch.schema.get_field_index(name)), name) for name in split.columns]
        if any(column is None for column in columns):
            return None
        return pa.RecordBatch.from_arrays(columns, list(split.columns))

    def _as_read(self, column: pa.Array, name: str) -> pa.Array | None:
        """Return the values of a column of `_split_column`; None if they do not have the column's type."""
        if self._settings.properties.encoding or pa.types.is_floating(column.type):
            return column
        converter = ColumnConverter(self._settings.configured_kinds, {}, None)
        converted, _ = converter.convert(pa.RecordBatch.from_arrays([column], [name]))
        return None if converted is None else converted.column(0)


def guess_kinds(settings: IngestSettings, file_ranges: Iterable[FileRange], reader: Reader) -> dict[str, Kind]:
    """Return the kinds of the columns in the first block of each range."""
    properties = settings.properties
    if isinstance(reader, ImageTable):
        # A block of it has few rows, and its images are of no use here.
        reader = reader.table
    converter = ColumnConverter(settings.configured_kinds, {}, properties.encoding, decimal=properties.decimal)
    row_log = RowLog(None)
    for file_range in file_ranges:
        for block in itertools.islice(reader.read(file_range, row_log), 1):
            _, invalid = converter.convert(block.columns)
            if invalid:
                converter.convert(drop_rows(block, {value.row for value in invalid}).columns)
    return converter.kinds


def _merge_written(one: Mapping[str, Kind] | None, other: Mapping[str, Kind] | None) -> Mapping[str, Kind] | None:
    if one is None or other is None or any(one[name] != other[name] for name in one.keys() & other.keys()):
        return None
    return {**one, **other}
