"""Bring the rows of every time series together: a hash of the series divides all rows into partitions.

Rows are checked as they are read, so that bad rows go to quarantine with their file and position. Blocks of rows, not
rows, are then grouped by partition. A partition fits into memory, and so do the series in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.data.arrow_columns import to_float64
from components.data.missing import without_nan
from components.ingest.blocks import (
    Block,
    BlockSource,
    FileRange,
    Reader,
    ReaderProperties,
    RowLog,
    drop_rows,
    merge_small,
    report_bad_rows,
)
from components.ingest.bundle_writer import IngestSettings
from components.ingest.column_types import ColumnConverter, find_oversized, quote
from components.ingest.config import IngestConfig
from components.ingest.row_filter import RowFilter, read_numbers
from components.ingest.series_windows import Series
from components.ingest.split_assignment import as_text, hash_rows, times_of
from components.ingest.time_steps import Step, merge_differences
from components.ingest.window_config import IngestedWindows

_PARTITION = 16 << 20
"""Bytes of input per partition."""
_MOST = 1_024
_UNKNOWN = 64
"""Number of partitions of an input of unknown size."""
_COUNTS = "counts"
Partition = tuple[int, Iterable[pa.RecordBatch]]
"""Number of a partition, and all its rows."""


class Partitions(NamedTuple):
    """The rows of all series.

    Attributes:
      rows: Collection of partitions.
      counts: Collection of the counts of the rows that were read.
      step: The distance of two steps in a series, or a collection with it.
    """

    rows: beam.PCollection
    counts: beam.PCollection
    step: Step | beam.PCollection


def count_partitions(size: int | None) -> int:
    """Return the number of partitions for an input of this size in bytes, or of unknown size."""
    return _UNKNOWN if size is None else max(1, min(_MOST, -(-size // _PARTITION)))


def partition(
    elements: beam.PCollection, settings: IngestSettings, reader: Reader | None, partitions: int
) -> Partitions:
    """Read, check and partition all rows.

    Args:
      elements: Collection of tuples of file ranges, or of blocks of rows.
      settings: Settings that all workers share, whose config has windows.
      reader: Reader of the file ranges. None if the elements are blocks.
      partitions: Number of partitions.
    """
    read = elements | "ReadSeries" >> beam.ParDo(_ReadSeries(settings, reader, partitions)).with_outputs(
        _COUNTS, main="rows"
    )
    rows = read["rows"] | "GroupSeries" >> beam.GroupByKey()
    maker = SeriesReader.create(settings.config, settings.properties)
    if maker.windows.every is not None:
        return Partitions(rows, read[_COUNTS], Step.parse(maker.windows.every, settings.config.split.unit))
    step = (
        rows
        | "Differences" >> beam.Map(lambda element: maker.series(element).differences())
        | "MergeDifferences" >> beam.CombineGlobally(merge_differences)
        | "Step" >> beam.Map(lambda differences: differences.infer())
    )
    return Partitions(rows, read[_COUNTS], step)


@dataclass(frozen=True)
class SeriesReader:
    """Makes the rows of forecasts from partitions.

    Attributes:
      windows: The windows.
      config: Config of the ingest.
      decimal: Decimal sign of numbers in text.
    """

    windows: IngestedWindows
    config: IngestConfig
    decimal: str

    @classmethod
    def create(cls, config: IngestConfig, properties: ReaderProperties) -> SeriesReader:
        """Create the reader for a config with windows."""
        if config.windows is None:
            raise ValueError("expected a config with windows, received none")
        return cls(config.windows, config, properties.decimal)

    def series(self, element: Partition) -> Series:
        """Return the sorted series of a partition."""
        return Series(element[1], self.windows, self.config.split.unit, self.decimal)

    def read(self, element: Partition, step: Step, *, only_last: bool = False) -> Iterator[Block]:
        """Yield the rows of a partition; see `Series.rows`."""
        file_range = FileRange(f"partition {element[0]:05d} of the series")
        for rows in self.series(element).rows(step, only_last=only_last):
            yield Block(rows, (BlockSource(file_range, rows.num_rows, partial(add, 1)),))


class _ReadSeries(beam.DoFn):  # type: ignore[misc]
    """Yields the rows of elements by partition, and the counts of the rows to a tagged output."""

    def __init__(self, settings: IngestSettings, reader: Reader | None, partitions: int) -> None:
        self._settings, self._reader, self._partitions = settings, reader, partitions

    def process(self, element: tuple[FileRange, ...] | Block) -> Iterator[tuple[int, pa.RecordBatch]]:
        row_log = RowLog(self._settings.folder)
        blocks: Iterable[Block] = []
        if isinstance(element, Block):
            for source in element.sources:
                row_log.add_range(source.file_range, source.rows)
            blocks = [element]
        elif self._reader:
            reader = self._reader
            blocks = merge_small(itertools.chain.from_iterable(reader.read(part, row_log) for part in element))
        checker = _RowChecker(self._settings)
        by_partition: dict[int, list[pa.RecordBatch]] = {}
        for block in blocks:
            rows = checker.select(block, row_log)
            numbers = checker.hash_series(rows) % np.uint64(self._partitions)
            for number in np.unique(numbers).tolist():
                chosen = pa.array(np.flatnonzero(numbers == number))
                part = pa.RecordBatch.from_arrays([column.take(chosen) for column in rows.columns], rows.schema.names)
                by_partition.setdefault(int(number), []).append(part)
        for number, batches in sorted(by_partition.items()):
            yield from ((number, batch) for batch in _merge_batches(batches))
        yield beam.pvalue.TaggedOutput(_COUNTS, row_log.close())


class _RowChecker:
    """Selects the rows that belong to series, and reports bad rows.

    Args:
      settings: Settings that all workers share, whose config has windows.
    """

    def __init__(self, settings: IngestSettings) -> None:
        self._settings = settings
        self._windows = SeriesReader.create(settings.config, settings.properties).windows
        where = settings.config.where
        self._filter = None if where is None else RowFilter(where, settings.properties.decimal)

    def select(self, block: Block, row_log: RowLog) -> pa.RecordBatch:
        """Return the rows that `data.where` selects and that are not bad.

        The columns are text (binary), int64, float64 or null, or lists of these.
        """
        self._windows.check_columns(block.columns.schema.names)
        if self._filter:
            selected, bad = self._filter.select(block.columns)
            report_bad_rows(block, bad, row_log)
            selected[list(bad)] = False
            unselected = np.flatnonzero(~selected)
            row_log.add_unselected(len(unselected) - len(bad))
            block = drop_rows(block, unselected) if len(unselected) else block
        while block.columns.num_rows:
            columns, bad = self._convert(without_nan(block.columns))
            if not bad:
                return columns
            report_bad_rows(block, bad, row_log)
            block = drop_rows(block, bad)
        return block.columns

    def _convert(self, columns: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, tuple[str, str]]]:
        settings, properties = self._settings, self._settings.properties
        converter = ColumnConverter(
            settings.configured_kinds, {}, properties.encoding, decimal=properties.decimal, files=properties.files
        )
        most = settings.config.bad_rows.max_cell_bytes
        oversized = find_oversized(columns, most, properties.files)
        converted, invalid = (None, oversized) if oversized else converter.convert(columns)
        if converted is None:
            return columns, {value.row: (value.column, value.reason) for value in reversed(invalid)}
        if properties.encoding:
            # The types of text are only known after all rows have been read.
            return columns, self._find_bad(columns)
        # The converter stores floats as float32, in which sums and times would lose digits.
        arrays = [
            to_float64(before) if pa.types.is_floating(before.type) else after
            for before, after in zip(columns.columns, converted.columns, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, columns.schema.names)
        return rows, self._find_bad(rows)

    def hash_series(self, rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        """Return a hash of the series of every row, [rows]; 0 if all rows are one series."""
        if not self._windows.by:
            return np.zeros(rows.num_rows, np.uint64)
        # Hash texts: a file of whole numbers may contain the series of a file of words.
        texts = [as_text(_column(rows, name)) for name in self._windows.by]
        return hash_rows(pa.RecordBatch.from_arrays(texts, list(self._windows.by)))

    def _find_bad(self, rows: pa.RecordBatch) -> dict[int, tuple[str, str]]:
        """Return the rows without series or time, and with text instead of a number."""
        bad: dict[int, tuple[str, str]] = {}

        def report(name: str, is_bad: npt.NDArray[np.bool_], expected: str) -> None:
            texts = as_text(_column(rows, name))
            for row in np.flatnonzero(is_bad).tolist():
                value = texts[row].as_py()
                received = "nothing" if value is None else quote(value)
                bad.setdefault(row, (name, f"expected {expected}, received {received}"))

        for name in self._windows.by:
            report(name, np.asarray(as_text(_column(rows, name)).is_null()), "the series of the row")
        unit, time = self._settings.config.split.unit, self._windows.time
        is_time = times_of(_column(rows, time), unit)[1]
        report(time, ~is_time, f"a time ({unit} since 1970, as data.split.unit says, or ISO 8601)")
        for name in (self._windows.label, *self._windows.past):
            is_text = read_numbers(_column(rows, name), self._settings.properties.decimal)[1]
            report(name, is_text, "a number, which data.windows needs")
        return bad


def _column(rows: pa.RecordBatch, name: str) -> pa.Array:
    return rows.column(rows.schema.get_field_index(name))


def _merge_batches(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of one partition, with those of the same columns joined."""
    for _, group in itertools.groupby(batches, key=lambda batch: batch.schema):
        yield from pa.Table.from_batches(list(group)).combine_chunks().to_batches()
