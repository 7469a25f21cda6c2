"""Row groups of Parquet files of examples: counted from the footers, and read one at a time.

Imports neither Beam nor TFX: the workers of a training cluster, which read these files, are started without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
from pyarrow import parquet

from components.base.errors import MachineError
from components.data import file_io
from components.data.checked_parquet import CheckedFile

_MAGIC = b"PAR1"
_VALUE_BYTES = {"INT64": 8, "FLOAT": 4}
_TEXT_BYTES = 64
"""Bytes of a text in memory, with its pointers; longer ones are rare among transformed features."""


class RowGroup(NamedTuple):
    """A row group.

    Attributes:
      path: Of its file.
      number: Its number in the file.
      rows: Number of rows, at least 1.
      memory: Bytes of its values in memory, at most; an estimate for texts.
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
    """Return the row groups of files that have rows, in the order of the files; read the footers only.

    Raises:
      MachineError: A file cannot be read.
    """
    found = []
    for path in paths:
        with _opened(path) as file:
            groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
            found += [
                RowGroup(path, number, group.num_rows, _memory(group))
                for number, group in enumerate(groups)
                if group.num_rows
            ]
    return found


def read(group: RowGroup, columns: Sequence[str]) -> pa.RecordBatch:
    """Read columns of a row group, in this order.

    Raises:
      MachineError: The file cannot be read, or does not have the columns.
    """
    with _opened(group.path) as file:
        missing = sorted({*columns}.difference(file.schema_arrow.names))
        if missing:
            details = f"expected the columns {', '.join(columns)}, received a file without {', '.join(missing)}"
            raise _damaged(group.path, details)
        table = file.read_row_group(group.number, columns=list(columns), use_threads=False).select(list(columns))
        (batch,) = table.combine_chunks().to_batches()
        return batch


def _memory(group: parquet.RowGroupMetaData) -> int:
    columns = [group.column(index) for index in range(group.num_columns)]
    return sum(column.num_values * _VALUE_BYTES.get(column.physical_type, _TEXT_BYTES) for column in columns)


@contextmanager
def _opened(path: str) -> Iterator[parquet.ParquetFile]:
    with file_io.open_binary(path) as file:
        try:
            yield parquet.ParquetFile(CheckedFile(file))
        except (OSError, pa.ArrowException) as error:
            raise _damaged(path, error) from error


def _damaged(path: str, reason: object) -> MachineError:
    return MachineError(f"{path}: the examples cannot be read: {reason}", "run again with --no-cache")
