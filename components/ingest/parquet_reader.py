"""Read the selected columns of Parquet files, some row groups at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import add

import pyarrow as pa
from pyarrow import parquet

from components.base.errors import InputError
from components.data import file_io
from components.data.arrow_columns import is_list, is_nested
from components.ingest.blocks import Block, BlockSource, FileRange, ReaderProperties, RowLog
from components.ingest.csv_header import column_names

_RANGE_BYTES = 64 << 20
"""Bytes of row groups in a range, before compression."""
_BUFFERS, _LEAST_BUFFER, _LARGEST_BUFFER = 128 << 20, 64 << 10, 8 << 20
"""Bytes of the buffers of all columns, and the minimum and maximum for one column. Without buffers, Arrow loads a whole
compressed row group before it returns the first row."""
_ROWS, _BLOCK_BYTES = 1 << 14, 8 << 20
"""Maximum number of rows of a block, and its approximate maximum bytes, which limits blocks of images."""


class ParquetReader:
    """Reads files with the same columns.

    Args:
      first: Path of the first file. All other files must have its columns.
      selected: Names of the columns to read; () for all.

    Raises:
      InputError: If the first file is not a Parquet file, or tf.Examples cannot represent one of the selected columns.
    """

    properties = ReaderProperties()

    def __init__(self, first: str, selected: Sequence[str] = ()) -> None:
        self._first = first
        fields = columns(first)
        self._selected = {name: field for name, field in fields.items() if not selected or name in selected}
        for name, field in self._selected.items():
            _refuse_nested(first, name, field)

    def first_range(self, path: str, split: str | None) -> FileRange:
        """Return the first row group."""
        return FileRange(path, stop=1, split=split)

    def ranges(self, path: str, split: str | None) -> list[FileRange]:
        """Divide a file into ranges of row groups.

        Raises:
          InputError: If the file is not a Parquet file, or its columns differ from the columns of the first file.
        """
        with _open(path) as file:
            self._check_columns(path, file.schema_arrow)
            groups = [file.metadata.row_group(at) for at in range(file.num_row_groups)]
            if not file.metadata.num_rows:
                raise InputError(f"{path} has no rows: it is a Parquet file of 0 rows", "remove the file")
        starts, size = [0], 0
        for at, group in enumerate(groups):
            if size >= _RANGE_BYTES:
                starts.append(at)
                size = 0
            size += group.total_byte_size
        return [
            FileRange(path, number, start, stop, split)
            for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(groups)], strict=True))
        ]

    def read(self, file_range: FileRange, row_log: RowLog) -> Iterator[Block]:
        """Yield the rows of a range, with the column types of the file.

        Raises:
          InputError: If the file is damaged.
        """
        rows = 0
        names = [field.name for field in self._selected.values()]
        buffer_size = max(_LEAST_BUFFER, min(_LARGEST_BUFFER, _BUFFERS // max(len(names), 1)))
        with _open(file_range.path, buffer_size) as file:
            # The first range of a file without row groups is empty.
            groups = list(range(file_range.start, min(file_range.stop, file.num_row_groups)))
            if not groups:
                return
            try:
                size = _choose_block_rows(file, groups, names)
                for batch in file.iter_batches(size, row_groups=groups, columns=names, use_threads=False):
                    arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
                    block = pa.RecordBatch.from_arrays(arrays, list(self._selected))
                    yield Block(block, (BlockSource(file_range, block.num_rows, partial(add, rows + 1)),))
                    rows += block.num_rows
            except (OSError, pa.ArrowInvalid) as error:
                raise _make_read_error(file_range.path, error) from error
        row_log.add_range(file_range, rows)

    def _check_columns(self, path: str, schema: pa.Schema) -> None:
        fields = dict(zip(column_names(path, schema.names), schema, strict=True))
        missing = sorted(set(self._selected) - set(fields))
        if missing:
            raise InputError(
                f"{path}: expected the columns of {self._first}, received none named {', '.join(missing)}",
                "give all files of the input the same columns, or name the columns that all files have in data.columns",
            )
        for name, field in self._selected.items():
            _refuse_nested(path, name, fields[name])
            received = fields[name].type
            # A column of nulls matches any type.
            untyped = pa.types.is_null(received) or pa.types.is_null(field.type)
            if is_list(received) != is_list(field.type) and not untyped:
                raise InputError(
                    f"{path}: expected the column {name} as in {self._first} ({field.type}), received {received}",
                    "write it in the same way in all files",
                )


def columns(path: str) -> dict[str, pa.Field]:
    """Return the columns of a file, by their names in the config.

    Raises:
      InputError: If the file is not a Parquet file.
    """
    with _open(path) as file:
        schema = file.schema_arrow
    return dict(zip(column_names(path, schema.names), schema, strict=True))


def _choose_block_rows(file: parquet.ParquetFile, groups: Sequence[int], names: Sequence[str]) -> int:
    """Return the number of rows of a block, from the column sizes in the footer of the file."""
    largest = 1
    for group in (file.metadata.row_group(at) for at in groups):
        chunks = map(group.column, range(group.num_columns))
        size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in names)
        largest = max(largest, size // max(group.num_rows, 1))
    return max(1, min(_ROWS, _BLOCK_BYTES // largest))


@contextmanager
def _open(path: str, buffer_size: int = 0) -> Iterator[parquet.ParquetFile]:
    """Open a Parquet file, and close it at the end of the block.

    Args:
      path: Path of the file.
      buffer_size: Bytes of a column to read at a time. If 0, a column is read one row group at a time.
    """
    with file_io.open_binary(path) as file:
        try:
            parquet_file = parquet.ParquetFile(file, buffer_size=buffer_size)
        except (OSError, pa.ArrowInvalid) as error:
            raise _make_read_error(path, error) from error
        yield parquet_file


def _make_read_error(path: str, error: Exception) -> InputError:
    reason = str(error).splitlines()[0]
    return InputError(f"{path} is not a Parquet file, or a damaged one: {reason}", "fetch or write the file again")


def _refuse_nested(path: str, name: str, field: pa.Field) -> None:
    if is_nested(field.type):
        raise InputError(
            f"{path}: the column {name} is nested ({field.type}): expected numbers, text, dates, or lists of these",
            "flatten it, or name the other columns in data.columns",
        )
