"""Join a side table that does not fit into memory: a hash of the key divides both tables into partitions on disk.

The rows of the side table and the keys of the data are written to files, with a batch per partition in every file. A
partition of the side table fits into memory. It is joined with the same partition of all keys, and the result is a file
with the added columns. The reader of the data then adds these columns to its rows in their order, so that all later
steps see the same rows as with a table in memory.

Source: the GRACE hash join; Kitsuregawa, Tanaka, Moto-oka: Application of Hash to Data Base Machine and Its
Architecture (1983).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tfx.dsl.io import fileio

from components.base.memory import memory
from components.data import file_io
from components.ingest import readers, side_files
from components.ingest.blocks import FileRange, Matches, Reader, RowLog
from components.ingest.config import RowsConfig, ValueType
from components.ingest.joined_reader import Join, Joined, TableJoin, count_matches, find_types
from components.ingest.side_files import SideFiles
from components.ingest.side_keys import HASH, ROW, KeyColumns, is_encoded
from components.ingest.side_table import SideConverter, SideTable

Ranges: TypeAlias = "tuple[FileRange, ...]"
_PARTITION = 64 << 20
"""Bytes of memory of a partition of the side table."""
_MOST = 1_024
_RUN_ROWS, _RUN_BYTES = 1 << 17, 64 << 20
"""Number of rows and bytes after which a run ends."""
_INDEX = "index.json"


def find_limit() -> int:
    """Return the largest size in bytes of a side table in memory: an eighth of the machine's memory per core."""
    return memory()[0] // (8 * (os.cpu_count() or 1))


@dataclass(frozen=True, order=True)
class _Run:
    """A file with consecutive rows, divided into one batch per partition.

    Attributes:
      file: Path of the file that the rows come from. Runs are sorted by `file`, `number` and `first`.
      number: Number of the range in the file.
      first: Index of the first row among the rows of the range.
      rows: Number of rows, including rows without a key.
      path: Path of the run.
    """

    file: str
    number: int
    first: int
    rows: int
    path: str


class SideTables:
    """The side tables of a config, in memory if they fit, otherwise on disk.

    Args:
      config: Config of the rows.
      folder: Folder for temporary files, which Beam's workers share.

    Raises:
      InputError: If a side table cannot be read, or the keys of a table in memory are not distinct.

    Attributes:
      joins: The joins. A join on disk can be read after `spill`.
      previews: The joins with the same columns, where columns of joins on disk are missing.
    """

    def __init__(self, config: RowsConfig, folder: str) -> None:
        self._config = config
        self.joins: list[Join] = []
        self.previews: list[Join] = []
        for number, files in enumerate(side_files.find(config)):
            size = files.estimate_memory()
            if size <= find_limit():
                self.joins.append(TableJoin(config, files))
                self.previews.append(self.joins[-1])
                continue
            partitions = max(2, min(_MOST, -(-size // _PARTITION)))
            spilled = SpilledJoin(config, files, file_io.join(folder, f"join-{number}"), partitions)
            self.joins.append(spilled)
            self.previews.append(_Preview(spilled.types, spilled.schema))

    def spill(self, elements: beam.PCollection, paths: Sequence[str]) -> beam.PCollection:
        """Add the joins on disk to a Beam pipeline.

        Args:
          elements: Collection of tuples of the ranges of the data.
          paths: Paths of all files of the data.

        Returns:
          The same elements, which wait until all joins are complete.
        """
        for number, join in enumerate(self.joins):
            if isinstance(join, SpilledJoin):
                columns = self._config.join[number].data_keys
                reader = readers.rows_reader(self._config, paths, columns, self.joins[:number])
                elements = join.spill(elements, reader)
        return elements


class SpilledJoin:
    """A join whose result is on disk.

    Args:
      config: Config of the rows.
      files: Files of the side table.
      folder: Folder of the files of the join.
      partitions: Number of partitions.

    Raises:
      InputError: If a row of the side table cannot be read.
    """

    def __init__(self, config: RowsConfig, files: SideFiles, folder: str, partitions: int) -> None:
        self._folder, self._partitions = folder, partitions
        types = {name: type_ for name, type_ in config.types.items() if name in files.added}
        self._converter = _infer_kinds(SideConverter(files, types, {}))
        self._keys = self._converter.keys_of_data(config)
        self.types: Mapping[str, ValueType] = find_types(self._converter)
        self._paths: list[str] = []
        self._runs: dict[tuple[str, int], list[tuple[int, _Run]]] = {}
        self._chunk: tuple[int, pa.RecordBatch] | None = None

    @property
    def schema(self) -> dict[str, pa.DataType]:
        """Name of an added column → type of its values."""
        return self._converter.schema

    def spill(self, elements: beam.PCollection, reader: Reader) -> beam.PCollection:
        """Join the tables in a Beam pipeline; see `SideTables.spill`.

        Args:
          elements: Collection of tuples of the ranges of the data.
          reader: Reader of the columns of the key in the data.
        """
        fileio.makedirs(self._folder)
        files, name = self._converter.files, self._converter.files.field
        side_reader = files.create_reader()
        side_ranges = [file_range for path in files.paths for file_range in side_reader.ranges(path, None)]
        spiller = _Spiller(self._folder, self._partitions)
        side_runs = (
            elements.pipeline
            | f"{name}/SideRanges" >> beam.Create(side_ranges)
            | f"{name}/SpreadSide" >> beam.Reshuffle()
            | f"{name}/SpillSide" >> beam.FlatMap(spiller.spill_side, side_reader, self._converter)
        )
        runs = elements | f"{name}/SpillKeys" >> beam.FlatMap(spiller.spill_keys, reader, self._keys)
        results = (
            elements.pipeline
            | f"{name}/Partitions" >> beam.Create(range(self._partitions))
            | f"{name}/SpreadPartitions" >> beam.Reshuffle()
            | f"{name}/Join"
            >> beam.Map(_join_partition, beam.pvalue.AsList(side_runs), beam.pvalue.AsList(runs), files, self._folder)
        )
        index = (
            elements.pipeline
            | f"{name}/Once" >> beam.Create([file_io.join(self._folder, _INDEX)])
            | f"{name}/WriteIndex" >> beam.Map(_write_index, beam.pvalue.AsList(results), beam.pvalue.AsList(runs))
        )
        return elements | f"{name}/Wait" >> beam.Map(lambda element, _index: element, beam.pvalue.AsList(index))

    def join(self, rows: pa.RecordBatch, file_range: FileRange, first: int) -> Joined:
        """Return the added columns of rows; see `Join`."""
        parts: list[pa.RecordBatch] = []
        for index, run in self._find_runs(file_range):
            start, stop = max(first, run.first), min(first + rows.num_rows, run.first + run.rows)
            if start < stop:
                parts.append(self._read_run(index, run).slice(start - run.first, stop - start))
        columns = pa.Table.from_batches(parts).combine_chunks().to_batches()[0] if len(parts) > 1 else parts[0]
        is_matched = np.asarray(columns.column(columns.num_columns - 1).is_valid())
        arrays = dict(zip(columns.schema.names[:-1], columns.columns[:-1], strict=True))
        if is_matched.any():
            return Joined(arrays, Matches(len(is_matched), int(np.count_nonzero(is_matched))))
        keys, valid = self._keys.encode(rows)
        return Joined(arrays, count_matches(self._keys, keys, valid, is_matched, "other keys"))

    def _find_runs(self, file_range: FileRange) -> list[tuple[int, _Run]]:
        """Return the runs of a range, with their numbers among all runs."""
        if not self._runs:
            with file_io.open_binary(file_io.join(self._folder, _INDEX)) as file:
                content = json.loads(file.read())
            self._paths = content["partitions"]
            for index, fields in enumerate(content["runs"]):
                run = _Run(**fields)
                self._runs.setdefault((run.file, run.number), []).append((index, run))
        return self._runs[file_range.path, file_range.number]

    def _read_run(self, index: int, run: _Run) -> pa.RecordBatch:
        """Return the added columns of all rows of a run, then the index of the row, which is null without a match."""
        if self._chunk is None or self._chunk[0] != index:
            joined = pa.Table.from_batches(list(_read_batches(self._paths, index))).combine_chunks()
            places = np.full(run.rows, -1)
            places[np.asarray(joined[ROW])] = np.arange(joined.num_rows)
            indices = pa.array(places, mask=places < 0)
            columns = {name: _as_array(joined[name]).take(indices) for name in (*self.schema, ROW)}
            self._chunk = index, pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        return self._chunk[1]


@dataclass(frozen=True)
class _Preview:
    """A join whose columns are missing, for the schema of the rows before the tables are joined."""

    types: Mapping[str, ValueType]
    schema: Mapping[str, pa.DataType]

    def join(self, rows: pa.RecordBatch, file_range: FileRange, first: int) -> Joined:
        return Joined({name: pa.nulls(rows.num_rows, type_) for name, type_ in self.schema.items()}, Matches())


@dataclass(frozen=True)
class _Spiller:
    """Writes rows to runs.

    Attributes:
      folder: Folder of the runs.
      partitions: Number of partitions.
    """

    folder: str
    partitions: int

    def spill_side(self, file_range: FileRange, reader: Reader, converter: SideConverter) -> Iterator[_Run]:
        """Write the rows of a range of the side table."""
        row_log = RowLog(None)
        blocks = (converter.convert(block) for block in reader.read(file_range, row_log))
        yield from self._write_runs(file_range, ((batch, batch.num_rows) for batch in blocks))
        converter.refuse_bad_rows(row_log)

    def spill_keys(self, element: Ranges, reader: Reader, keys: KeyColumns) -> Iterator[_Run]:
        """Write the keys of ranges of the data."""
        for file_range in element:
            blocks = reader.read(file_range, RowLog(None))
            yield from self._write_runs(file_range, (_encode(block.columns, keys) for block in blocks))

    def _write_runs(self, file_range: FileRange, batches: Iterable[tuple[pa.RecordBatch, int]]) -> Iterator[_Run]:
        pending: list[pa.RecordBatch] = []
        first = rows = size = 0
        for batch, count in batches:
            places = np.asarray(batch.column(batch.schema.get_field_index(ROW)))
            pending.append(_replace_rows(batch, places + rows) if rows else batch)
            rows, size = rows + count, size + batch.nbytes
            if rows >= _RUN_ROWS or size >= _RUN_BYTES:
                yield self._write_run(file_range, first, rows, pending)
                first, rows, size, pending = first + rows, 0, 0, []
        if pending:
            yield self._write_run(file_range, first, rows, pending)

    def _write_run(self, file_range: FileRange, first: int, rows: int, batches: list[pa.RecordBatch]) -> _Run:
        table = pa.Table.from_batches(batches)
        numbers = (np.asarray(_as_array(table[HASH])) % np.uint64(self.partitions)).astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        ends: list[int] = np.cumsum(np.bincount(numbers, minlength=self.partitions)).tolist()
        arrays = [_as_array(column).take(pa.array(order)) for column in table.columns]
        ordered = pa.RecordBatch.from_arrays(arrays, table.schema.names)
        path = file_io.join(self.folder, f"run-{uuid.uuid4().hex}.arrow")
        parts = (ordered.slice(start, end - start) for start, end in zip([0, *ends[:-1]], ends, strict=True))
        _write_batches(path, ordered.schema, parts)
        return _Run(file_range.path, file_range.number, first, rows, path)


def _infer_kinds(converter: SideConverter) -> SideConverter:
    """Return the converter with the kinds of all columns, which one pass over the side table finds."""
    reader, row_log = converter.files.create_reader(), RowLog(None)
    for path in converter.files.paths:
        for file_range in reader.ranges(path, None):
            for block in reader.read(file_range, row_log):
                converter = converter.infer([block])
    converter.refuse_bad_rows(row_log)
    return converter


def _join_partition(partition: int, side_runs: list[_Run], runs: list[_Run], files: SideFiles, folder: str) -> str:
    """Join a partition of both tables, and write the rows that match, with one batch per run of the data.

    Returns:
      The path of the file. If Beam repeats the partition, only the path of one attempt is used.
    """
    order = {path: number for number, path in enumerate(files.paths)}
    sorted_runs = sorted(side_runs, key=lambda run: (order[run.file], run.number, run.first))
    table = SideTable(list(_read_batches([run.path for run in sorted_runs], partition)), files)
    schema = pa.schema([*((name, column.type) for name, column in table.columns.items()), (ROW, pa.int64())])
    keys = _read_batches([run.path for run in sorted(runs)], partition)
    path = file_io.join(folder, f"partition-{uuid.uuid4().hex}.arrow")
    _write_batches(path, schema, (_look_up(batch, table) for batch in keys))
    return path


def _look_up(batch: pa.RecordBatch, table: SideTable) -> pa.RecordBatch:
    keys = {name: column for name, column in zip(batch.schema.names, batch.columns, strict=True) if is_encoded(name)}
    side_rows = table.find(keys, np.ones(batch.num_rows, bool))
    matched = side_rows >= 0
    columns = {name: column.take(pa.array(side_rows[matched])) for name, column in table.columns.items()}
    columns[ROW] = keys[ROW].filter(pa.array(matched))
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _encode(rows: pa.RecordBatch, keys: KeyColumns) -> tuple[pa.RecordBatch, int]:
    """Return the encoded keys of the rows that have one, and the number of rows."""
    encoded, valid = keys.encode(rows)
    encoded[ROW] = pa.array(np.arange(len(valid)))
    batch = pa.RecordBatch.from_arrays(list(encoded.values()), list(encoded))
    return batch.filter(pa.array(valid)), rows.num_rows


def _replace_rows(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {ROW: pa.array(rows)}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _as_array(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.nulls(0, column.type)


def _write_batches(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    with file_io.create(path) as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _read_batches(paths: Iterable[str], number: int) -> Iterator[pa.RecordBatch]:
    """Yield the batch with a number of every file."""
    for path in paths:
        with file_io.open_binary(path) as file, pa.ipc.open_file(file) as reader:
            yield reader.get_batch(number)


def _write_index(path: str, partitions: list[str], runs: list[_Run]) -> None:
    with file_io.create(path) as file:
        file.write(json.dumps({"partitions": partitions, "runs": [asdict(run) for run in sorted(runs)]}).encode())
