"""Write predictions to Parquet, CSV or TFRecord files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from components.base.errors import InputError
from components.data import file_io
from components.data.arrow_columns import is_list
from components.data.examples import to_lists
from components.data.tfrecord_writer import TfrecordWriter, frame_examples
from components.predictor.config import OutputFormat

SUFFIXES: Mapping[OutputFormat, str] = {"parquet": ".parquet", "csv": ".csv", "tfrecord": ".tfrecord.gz"}


class Writer(Protocol):
    """Writes batches with the same columns to a file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""

    def close(self) -> None:
        """Complete the file."""


def create(path: str, format_: OutputFormat, schema: pa.Schema) -> Writer:
    """Create a writer of a local or remote file; the caller renames the file when it is complete.

    Args:
      path: Temporary path of the file.
      format_: Format of the file.
      schema: Columns of all batches.
    """
    if format_ == "parquet":
        return _Parquet(path, schema)
    return _Csv(path, schema) if format_ == "csv" else _Tfrecord(path)


class _Parquet:
    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file = file_io.create(path)
        self._writer = parquet.ParquetWriter(self._file, schema, compression="zstd", use_compliant_nested_type=True)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        self._file.close()


class _Csv:
    """Writes CSV, which does not support lists. A list of n values is written as n columns, and lists of texts with
    different lengths as one text.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        flat_schema = _flatten_lists(pa.RecordBatch.from_pylist([], schema)).schema
        self._file = file_io.create(path)
        self._writer = csv.CSVWriter(self._file, flat_schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(_flatten_lists(batch))

    def close(self) -> None:
        self._writer.close()
        self._file.close()


class _Tfrecord:
    def __init__(self, path: str) -> None:
        self._writer = TfrecordWriter(path)

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = [_convert_to_feature(column) for column in batch.columns]
        self._writer.write(frame_examples(to_lists(pa.RecordBatch.from_arrays(arrays, batch.schema.names))))

    def close(self) -> None:
        self._writer.close()


def _flatten_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace every column of fixed-size lists by one column per position, named `NAME_POSITION`, and join the texts of
    lists of different sizes by `|`.

    Raises:
      InputError: If a column contains lists of different sizes, and not of texts.
    """
    arrays: dict[str, pa.Array] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_fixed_size_list(column.type):
            arrays |= {
                f"{name}_{position}": pc.list_element(column, position) for position in range(column.type.list_size)
            }
        elif pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
            arrays[name] = pc.binary_join(column, "|")
        elif pa.types.is_nested(column.type):
            raise InputError(
                f"column {name}: expected one value per row, received {column.type}", "write parquet or tfrecord"
            )
        else:
            arrays[name] = column
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _convert_to_feature(column: pa.Array) -> pa.Array:
    """Convert a column to a type that a tf.Example can store: int64, float32, bytes, or a list of one of them."""
    if is_list(column.type):
        return pa.ListArray.from_arrays(_compute_offsets(column), _convert_to_feature(column.flatten()))
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.int64())
    if pa.types.is_floating(column.type):
        return column.cast(pa.float32())
    return column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())


def _compute_offsets(column: pa.Array) -> pa.Array:
    sizes = np.asarray(pc.list_value_length(column).fill_null(0))
    return pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
