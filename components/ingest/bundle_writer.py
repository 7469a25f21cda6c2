"""Read, check, split and write the rows of one bundle, and infer the types of the columns at the same time.

The types of text are only known after all rows have been read. Therefore the first pass guesses them from a few rows,
writes the examples at once, and checks whether the guess holds. If the guess fails for any row, or if a split by time
needs all times first, a second pass writes the examples with the types and times that the first pass found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from components.data import examples
from components.data.missing import without_nan
from components.data.tfrecord_writer import frame_examples, frame_records
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
    report_bad_rows,
    without_bad_rows,
)
from components.ingest.column_types import KINDS, ColumnConverter, Kind
from components.ingest.config import SAMPLING_WEIGHT, IngestConfig, ValueType
from components.ingest.image_table import ImageTable
from components.ingest.row_filter import RowFilter
from components.ingest.row_sampler import RowSampler
from components.ingest.shard_writer import Shard
from components.ingest.split_assignment import LEFT_OUT, Splitter, TimeHistogram
from components.ingest.window_config import ORIGIN
from components.ingest.within_split import GroupBorders, RowOrder


@dataclass(frozen=True)
class IngestSettings:
    """The settings that all workers share.

    Attributes:
      config: Config of the ingest.
      properties: Properties of the rows' format.
      folder: Folder that receives shards and bad rows under temporary names.
      stored: File format of the examples.
      guess: Column name → kind, guessed from a few rows.
      by_span: Whether a shard contains rows of one span only. It is then the same in every run that reads the span.
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
        types |= {**self.properties.joined, **self.config.types}
        return {name: KINDS[type_] for name, type_ in types.items()}


@dataclass(frozen=True)
class FirstPassSummary:
    """The findings of the first pass about the rows of one or several bundles.

    Attributes:
      counts: Counts of the rows, and the first bad rows.
      kinds: Column name → smallest kind that can hold all values of the column.
      times: Histogram of the times of the rows, for a split by time.
      orders: Order of the rows within their groups, for a split within groups.
      written_kinds: Column name → kind that the examples were written with. None if the examples were not written, or
        not all with the same kinds.
    """

    counts: RowCounts = field(default_factory=RowCounts)
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    times: TimeHistogram = field(default_factory=TimeHistogram)
    orders: tuple[RowOrder, ...] = ()
    written_kinds: Mapping[str, Kind] | None = field(default_factory=dict)

    def merge(self, other: FirstPassSummary) -> FirstPassSummary:
        """Return the summary of the rows of two summaries."""
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
      summary: Summary of the first pass; empty in the second pass.
      shards: Files that were written.
      left_out: Number of rows in a gap between two splits, which are not written.
      sampled_out: Number of rows that `data.sample` does not keep.
      rows_by_part: Number of rows in each part of the sample, before a share of them is kept.
    """

    summary: FirstPassSummary
    shards: tuple[Shard, ...]
    left_out: int
    sampled_out: int
    rows_by_part: tuple[int, ...] = ()


class BundleWriter:
    """Writes the rows of a bundle; call `close` for the result.

    Args:
      settings: Settings that all workers share.
      first_pass: Summary of all rows in the second pass; None in the first pass.
    """

    def __init__(self, settings: IngestSettings, first_pass: FirstPassSummary | None = None) -> None:
        self._settings, self._first_pass = settings, first_pass
        guess = settings.guess if first_pass is None else first_pass.kinds
        minimum = None if first_pass is None else first_pass.kinds
        properties = settings.properties
        self._converter = ColumnConverter(
            settings.configured_kinds, guess, properties.encoding, minimum, properties.decimal, properties.files
        )
        where = settings.config.where
        self._filter = None if where is None else RowFilter(where, properties.decimal)
        sample = settings.config.sample
        self._sampler = None if sample is None else RowSampler(sample, properties.joined.keys())
        self._sampled_out = 0
        self._splitter = Splitter(
            settings.config.split,
            properties.key_columns,
            {*settings.config.unhashed, *properties.joined},
            ORIGIN if settings.config.windows else None,
        )
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
        """Read and write the rows of some ranges of one span."""
        blocks = itertools.chain.from_iterable(reader.read(file_range, self._row_log) for file_range in file_ranges)
        for block in merge_small(blocks):
            self._select(block)
        if self._settings.by_span and self._writer:
            self._writer.end_shards()

    def write(self, block: Block) -> None:
        """Write rows that were already read, such as the rows of a query."""
        for source in block.sources:
            self._row_log.add_range(source.file_range, source.rows)
        self._select(block)

    def close(self) -> BundleResult:
        """Close the files and return the result."""
        written = self._converter.output_kinds if self._writer else None
        counts = self._row_log.close()
        shards = tuple(self._writer.close()) if self._writer else ()
        rows_by_part = tuple(self._sampler.rows_by_part) if self._sampler else ()
        if self._first_pass is not None:
            return BundleResult(FirstPassSummary(), shards, self._left_out, self._sampled_out, rows_by_part)
        kinds = self._converter.kinds
        if self._settings.config.sample and self._settings.config.sample.parts:
            kinds = {**kinds, SAMPLING_WEIGHT: Kind.FLOAT}
            written = None if written is None else {**written, SAMPLING_WEIGHT: Kind.FLOAT}
        summary = FirstPassSummary(counts, kinds, self._times, tuple(self._orders), written)
        return BundleResult(summary, shards, self._left_out, self._sampled_out, rows_by_part)

    def _select(self, block: Block) -> None:
        """Process the rows that `data.where` selects."""
        if self._filter:
            selected, bad = self._filter.select(block.columns)
            report_bad_rows(block, bad, self._row_log)
            selected[list(bad)] = False
            unselected = np.flatnonzero(~selected)
            self._row_log.add_unselected(len(unselected) - len(bad))
            block = drop_rows(block, unselected) if len(unselected) else block
        if block.columns.num_rows:
            self._process(block)

    def _process(self, block: Block) -> None:
        columns = without_nan(block.columns)
        if columns is not block.columns:
            # The records contain NaN as a value, so encode the examples again.
            block = replace(block, columns=columns, records=None)
        key = self._select_split_columns(block.columns)
        converted: pa.RecordBatch | None = None
        bad = self._find_oversized(block.columns)
        if not bad and key is not None:
            bad = {row.index: (row.column, row.reason) for row in self._splitter.find_unassigned(key)}
        if not bad:
            # Convert last, so that bad rows do not influence the types.
            converted, invalid = self._converter.convert(block.columns)
            bad = {value.row: (value.column, value.reason) for value in reversed(invalid)}
        if bad:
            good_rows = without_bad_rows(block, bad, self._row_log)
            if good_rows.columns.num_rows:
                self._process(good_rows)
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

    def _find_oversized(self, columns: pa.RecordBatch) -> dict[int, tuple[str, str]]:
        most, files = self._settings.config.bad_rows.max_cell_bytes, self._settings.properties.files
        oversized = column_types.find_oversized(columns, most, files)
        return {value.row: (value.column, value.reason) for value in reversed(oversized)}

    def _write(
        self, block: Block, converted: pa.RecordBatch, key: pa.RecordBatch | None, writer: shard_writer.Writer
    ) -> None:
        first = block.sources[0].file_range
        indices = self._splitter.assign(converted if key is None else key, first.split, self._borders)
        self._left_out += int(np.count_nonzero(indices == LEFT_OUT))
        records = block.records
        if self._sampler:
            is_kept, weights = self._sampler.draw(converted)
            self._sampled_out += int(np.count_nonzero((indices != LEFT_OUT) & ~is_kept))
            indices = np.where(is_kept, indices, LEFT_OUT)
            if weights is not None:
                converted, records = _add_column(converted, SAMPLING_WEIGHT, weights), None
        rows: pa.Array | pa.RecordBatch = converted
        if self._settings.stored == "tfrecord":
            rows = frame_examples(converted) if records is None else frame_records(records)
        writer.write(rows, indices, (first.path, first.number), block.images)

    def _select_split_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the columns that assign rows to splits, with the values as read; None if all columns do.

        The converted values would not do: the type of a column is only known at the end, and float32 represents seconds
        since 1970 to within about two minutes.
        """
        split = self._settings.config.split
        if split.by not in ("time", "column", "within", "within_time"):
            return None
        names = self._splitter.key_columns
        columns = [self._keep_read(batch.column(batch.schema.get_field_index(name)), name) for name in names]
        if any(column is None for column in columns):
            return None
        return pa.RecordBatch.from_arrays(columns, list(names))

    def _keep_read(self, column: pa.Array, name: str) -> pa.Array | None:
        """Return the values of a column as they were read; None if they do not have the column's configured type."""
        if self._settings.properties.encoding or pa.types.is_floating(column.type):
            return column
        converter = ColumnConverter(self._settings.configured_kinds, {}, None)
        converted, _ = converter.convert(pa.RecordBatch.from_arrays([column], [name]))
        return None if converted is None else converted.column(0)


def guess_kinds(settings: IngestSettings, file_ranges: Iterable[FileRange], reader: Reader) -> dict[str, Kind]:
    """Return column name → kind, inferred from the first block of every range."""
    properties = settings.properties
    if isinstance(reader, ImageTable):
        # A block with images has few rows, and the images do not matter for the kinds.
        reader = reader.table
    converter = ColumnConverter(settings.configured_kinds, {}, properties.encoding, decimal=properties.decimal)
    row_log = RowLog(None)
    for file_range in file_ranges:
        for block in itertools.islice(reader.read(file_range, row_log), 1):
            _, invalid = converter.convert(block.columns)
            if invalid:
                converter.convert(drop_rows(block, {value.row for value in invalid}).columns)
    return converter.kinds


def _add_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, name])


def _merge_written(first: Mapping[str, Kind] | None, second: Mapping[str, Kind] | None) -> Mapping[str, Kind] | None:
    if first is None or second is None or any(first[name] != second[name] for name in first.keys() & second.keys()):
        return None
    return {**first, **second}
