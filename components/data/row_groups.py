"""Find the row groups of Parquet files of examples by the footers, and read them one at a time.

This module imports neither Beam nor TFX, because the workers of a training cluster read these files without them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
from pyarrow import parquet

from components.base.errors import MachineError
from components.data import file_io
from components.data.checked_parquet import CheckedFile
from components.data.parallel_reads import read_in_parallel

_MAGIC = b"PAR1"
_VALUE_BYTES = {"INT64": 8, "FLOAT": 4}
_TEXT_BYTES = 64
"""Minimum bytes of a text in memory, including pointers. Encoded images are much longer."""
_FOOTERS = 16
"""Number of footers that are read in parallel."""


class RowGroup(NamedTuple):
    """A row group.

    Attributes:
      path: Path of the file.
      number: Number of the row group in the file.
      rows: Number of rows, at least 1.
      memory: Upper bound on the bytes of the values in memory; an estimate for texts.
    """

    path: str
    number: int
    rows: int
    memory: int


def is_parquet(path: str) -> bool:
    """Return whether a file is a Parquet file, by its first bytes."""
    with file_io.open_binary(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC


def row_groups(paths: Iterable[str]) -> list[RowGroup]:
    """Return the row groups that contain rows, in the order of the files. Only the footers are read.

    Raises:
      MachineError: If a file cannot be read.
    """
    return list(itertools.chain.from_iterable(read_in_parallel(_read_footer, paths, _FOOTERS)))


def read(group: RowGroup, columns: Sequence[str]) -> pa.RecordBatch:
    """Read columns of a row group, in this order.

    Raises:
      MachineError: If the file cannot be read, or lacks a column.
    """
    with _open(group.path) as file:
        missing = sorted({*columns}.difference(file.schema_arrow.names))
        if missing:
            details = f"expected the columns {', '.join(columns)}, received a file without {', '.join(missing)}"
            raise _make_read_error(group.path, details)
        table = file.read_row_group(group.number, columns=list(columns), use_threads=False).select(list(columns))
        (batch,) = table.combine_chunks().to_batches()
        return batch


def _read_footer(path: str) -> list[RowGroup]:
    with _open(path) as file:
        groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
        return [
            RowGroup(path, number, group.num_rows, _memory(group))
            for number, group in enumerate(groups)
            if group.num_rows
        ]


def _memory(group: parquet.RowGroupMetaData) -> int:
    return sum(_column_memory(group.column(index)) for index in range(group.num_columns))


def _column_memory(column: parquet.ColumnChunkMetaData) -> int:
    if column.physical_type in _VALUE_BYTES:
        return int(column.num_values * _VALUE_BYTES[column.physical_type])
    return int(max(column.num_values * _TEXT_BYTES, column.total_uncompressed_size))


@contextmanager
def _open(path: str) -> Iterator[parquet.ParquetFile]:
    with file_io.open_binary(path) as file:
        try:
            yield parquet.ParquetFile(CheckedFile(file))
        except (OSError, pa.ArrowException) as error:
            raise _make_read_error(path, error) from error


def _make_read_error(path: str, reason: object) -> MachineError:
    return MachineError(f"{path}: the examples cannot be read: {reason}", "run again with --no-cache")
