"""Read and write examples as record batches. Only this module knows how the rows of a split are stored.

A split is stored in Parquet files, or in gzip-compressed TFRecord files of tf.Examples, which TFX's own components can
read. In both cases, batches have the types that TFX's decoder of tf.Examples returns: large_list of int64, float32 or
large_binary, where a missing value is null, and the type null if all values of a column are missing.

A row group of a Parquet file is a batch and the unit of parallel work. The writer bounds its rows and bytes, and
thereby the memory of every reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from tensorflow_metadata.proto.v0 import schema_pb2

from components.base.errors import InputError, MachineError
from components.data import file_io, tfrecord
from components.data.checked_parquet import CheckedFile, CheckedSink

Format = Literal["parquet", "tfrecord"]

BATCH_ROWS, BATCH_BYTES = 1 << 16, 32 << 20
"""Maximum number of rows of a batch, and bytes before compression after which the next batch begins."""

_SAMPLED, _MOST_DISTINCT = 4096, 0.25
"""Number of rows that are examined to find columns whose values repeat, and the share of distinct values above which
they do not. Every second number of a `piecewise_linear` repeats."""

_TYPES = {
    schema_pb2.INT: pa.large_list(pa.int64()),
    schema_pb2.FLOAT: pa.large_list(pa.float32()),
    schema_pb2.BYTES: pa.large_list(pa.large_binary()),
}


class FileRange(NamedTuple):
    """Row groups [first, last) of a file. A TFRecord file is a single range."""

    path: str
    first: int = 0
    last: int = 1


@dataclass(frozen=True)
class Examples:
    """The rows of a split.

    Attributes:
      paths: Paths of the files, sorted.
      format: Format of the files.
      schema: Columns to read, in this order. All batches then have the same Arrow schema. If None, all columns of a
        file are read, and a column may have the type null in some batches, or be absent in TFRecord files.
    """

    paths: tuple[str, ...]
    format: Format
    schema: schema_pb2.Schema | None = None

    def ranges(self, path: str) -> list[FileRange]:
        """Divide a file into ranges for parallel work.

        Raises:
          MachineError: If the file should be a Parquet file but is not.
        """
        if self.format == "tfrecord":
            return [FileRange(path)]
        with _parquet(path) as file:
            return [FileRange(path, at, at + 1) for at in range(file.num_row_groups)]

    def read(self, file_range: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, in the order of the file.

        Raises:
          InputError: If the type of a column differs from the schema.
          MachineError: If the file cannot be read.
        """
        read = _read_tfrecord if self.format == "tfrecord" else _read_parquet
        return read(file_range, self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in the order of the files; raise the errors of `ranges` and `read`."""
        for path in self.paths:
            for file_range in self.ranges(path):
                yield from self.read(file_range)


class ParquetWriter:
    """Writes batches to a Parquet file with checksums, in row groups of at most BATCH_ROWS rows.

    Args:
      path: Local or remote path. The caller renames the file when it is complete.
      schema: Arrow schema of all batches.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.rows = self.bytes = 0
        self._file = file_io.create(path)
        self._sink, self._schema = CheckedSink(self._file), schema
        self._writer: parquet.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = batch.slice(start, BATCH_ROWS)
            if self._pending_rows + part.num_rows > BATCH_ROWS or self._pending_bytes >= BATCH_BYTES:
                self._flush()
            self._pending.append(part)
            self._pending_rows += part.num_rows
            self._pending_bytes += part.nbytes

    def close(self) -> None:
        """Write the pending rows and the footer."""
        self._flush()
        writer = self._writer or self._create(self._schema.names)
        self._sink.hold()
        writer.close()
        self._sink.finish()
        self._file.close()

    def _flush(self) -> None:
        if self._pending:
            self._writer = self._writer or self._create(_find_repeating(self._pending[0]))
            self._writer.write_table(pa.Table.from_batches(self._pending), row_group_size=BATCH_ROWS)
        self.rows, self.bytes = self.rows + self._pending_rows, self.bytes + self._pending_bytes
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def _create(self, repeating: Sequence[str]) -> parquet.ParquetWriter:
        """Open the file. The values of the `repeating` columns are stored with a dictionary."""
        is_list = pa.types.is_large_list
        paths = [f"{name}.list.item" if is_list(self._schema.field(name).type) else name for name in repeating]
        # Do not write statistics of row groups, because no reader uses them.
        return parquet.ParquetWriter(
            *(self._sink, self._schema),
            compression="zstd",
            use_dictionary=paths,
            write_statistics=False,
            use_compliant_nested_type=False,
        )


def _find_repeating(batch: pa.RecordBatch) -> list[str]:
    """Return all columns except floats that rarely repeat, for which a dictionary would need more time and space."""
    names = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_large_list(column.type) and pa.types.is_floating(column.type.value_type):
            values = column.slice(0, _SAMPLED).flatten()
            if len(values.unique()) > len(values) * _MOST_DISTINCT:
                continue
        names.append(name)
    return names


def arrow_schema(schema: schema_pb2.Schema) -> pa.Schema:
    """Return the Arrow schema of batches that are read with a schema.

    Raises:
      InputError: If the type of a feature is not INT, FLOAT or BYTES.
    """
    unsupported = [feature.name for feature in schema.feature if feature.type not in _TYPES]
    if unsupported:
        raise InputError(
            f"schema: expected the types INT, FLOAT and BYTES, received other types for {', '.join(unsupported)}",
            "set the features' types in the schema",
        )
    return pa.schema([(feature.name, _TYPES[feature.type]) for feature in schema.feature])


def to_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert columns of int64, float32, binary or null, or of lists of these, to the types of batches."""
    # All columns without missing values share these offsets of one value per row.
    singles = pa.array(np.arange(batch.num_rows + 1, dtype=np.int64))
    columns = [_to_list(column, singles) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _to_list(column: pa.Array, singles: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return column.cast(pa.large_list(_value_type(column.type.value_type)))
    values = column.cast(_value_type(column.type))
    if not column.null_count:
        return pa.LargeListArray.from_arrays(singles, values)
    is_missing = np.append(np.asarray(column.is_null()), False)
    ends = np.arange(len(column) + 1)
    ends[1:] -= np.cumsum(is_missing[:-1])
    # A null offset is a missing list.
    return pa.LargeListArray.from_arrays(pa.array(ends, mask=is_missing), values.drop_null())


def _value_type(type_: pa.DataType) -> pa.DataType:
    return pa.large_binary() if pa.types.is_binary(type_) or pa.types.is_string(type_) else type_


def _read_parquet(file_range: FileRange, schema: schema_pb2.Schema | None) -> Iterator[pa.RecordBatch]:
    target = None if schema is None else arrow_schema(schema)
    path, first, last = file_range
    with _parquet(path) as file:
        # Read `schema_arrow` once, because every access converts all columns of the footer.
        stored = set(file.schema_arrow.names)
        columns = None if target is None else [name for name in target.names if name in stored]
        for at in range(first, last):
            try:
                table = file.read_row_group(at, columns=columns, use_threads=False)
            except (OSError, pa.ArrowException) as error:
                raise _make_read_error(path, error) from error
            (batch,) = table.combine_chunks().to_batches()
            yield batch if target is None else _conform(path, batch, target)


def _conform(path: str, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema. Columns that are empty or absent in the batch become nulls."""
    arrays = []
    for field in target:
        at = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows) if at < 0 else batch.column(at)
        if pa.types.is_null(column.type):
            column = pa.nulls(batch.num_rows, field.type)
        if column.type != field.type:
            raise _other_type(path, f"column {field.name}: expected {field.type}, received {column.type}")
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _read_tfrecord(file_range: FileRange, schema: schema_pb2.Schema | None) -> Iterator[pa.RecordBatch]:
    # Import late, because this import is slow and Parquet files do not need it.
    from tfx_bsl.coders import example_coder

    decoder = example_coder.ExamplesToRecordBatchDecoder(*([] if schema is None else [schema.SerializeToString()]))
    for records in _chunks(file_range.path):
        try:
            yield decoder.DecodeBatch(records)
        except (RuntimeError, ValueError) as error:
            raise _other_type(file_range.path, str(error)) from error


def _chunks(path: str) -> Iterator[list[bytes]]:
    """Yield the records of a file in chunks of the size of a batch; raise if a record does not match its checksum."""
    pending: list[bytes] = []
    size = 0
    for records, _, damaged in tfrecord.records(path):
        if damaged:
            raise _make_read_error(path, f"the record at offset {damaged[0]} does not match its checksum")
        pending += records
        size += sum(map(len, records))
        if len(pending) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield from (pending[at : at + BATCH_ROWS] for at in range(0, len(pending), BATCH_ROWS))
            pending, size = [], 0
    if pending:
        yield from (pending[at : at + BATCH_ROWS] for at in range(0, len(pending), BATCH_ROWS))


@contextmanager
def _parquet(path: str) -> Iterator[parquet.ParquetFile]:
    with file_io.open_binary(path) as file:
        try:
            parquet_file = parquet.ParquetFile(CheckedFile(file))
        except (OSError, pa.ArrowException) as error:
            raise _make_read_error(path, error) from error
        yield parquet_file


def _make_read_error(path: str, reason: object) -> MachineError:
    return MachineError(f"{path}: the examples cannot be read: {reason}", "run ExampleGen again with --no-cache")


def _other_type(path: str, details: str) -> InputError:
    return InputError(
        f"{path}: the examples do not fit the schema: {details}",
        "set data.types, or the type in the curated schema, so that both agree",
    )
