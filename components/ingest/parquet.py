"""Reads Parquet files, some row groups at a time, and only the columns that are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import add

import pyarrow as pa
from pyarrow import parquet

from components.errors import InputError
from components.ingest import source
from components.ingest.columns import is_list, is_nested
from components.ingest.header import column_names
from components.ingest.rows import Block, Ledger, Piece, Segment, Traits

_PIECE = 64 << 20
"""Bytes of row groups (not compressed) in a piece."""
_ROWS = 1 << 14
"""Rows of a block."""


class ParquetReader:
    """Reads files with the same columns.

    Args:
      first: the file that the others are held against.
      wanted: the columns to take; all if not given.

    Raises:
      InputError: the first file is no Parquet file, or has a wanted column that a tf.Example has no place for.
    """

    traits = Traits()

    def __init__(self, first: str, wanted: Sequence[str] = ()) -> None:
        self._first = first
        fields = columns(first)
        self._wanted = {name: field for name, field in fields.items() if not wanted or name in wanted}
        for name, field in self._wanted.items():
            _refuse_nested(first, name, field)

    def head(self, path: str, split: str | None) -> Piece:
        """The first row group."""
        return Piece(path, stop=1, split=split)

    def cut(self, path: str, split: str | None) -> list[Piece]:
        """The row groups of a file, in pieces.

        Raises:
          InputError: the file is no Parquet file, or its columns are not those of the first one.
        """
        with _opened(path) as file:
            self._expect(path, file.schema_arrow)
            groups = [file.metadata.row_group(at) for at in range(file.num_row_groups)]
            if not file.metadata.num_rows:
                raise InputError(f"{path} has no rows: it is a Parquet file of 0 rows", "leave the file out")
        starts, size = [0], 0
        for at, group in enumerate(groups):
            if size >= _PIECE:
                starts.append(at)
                size = 0
            size += group.total_byte_size
        return [
            Piece(path, number, start, stop, split)
            for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(groups)], strict=True))
        ]

    def read(self, piece: Piece, ledger: Ledger) -> Iterator[Block]:
        """The rows of a piece: columns as typed in the file.

        Raises:
          InputError: the file is damaged.
        """
        rows = 0
        names = [field.name for field in self._wanted.values()]
        with _opened(piece.path) as file:
            # The head of a file may be asked for that has no row groups at all.
            groups = list(range(piece.start, min(piece.stop, file.num_row_groups)))
            if not groups:
                return
            try:
                for batch in file.iter_batches(_ROWS, row_groups=groups, columns=names, use_threads=False):
                    found = [batch.column(batch.schema.get_field_index(name)) for name in names]
                    block = pa.RecordBatch.from_arrays(found, list(self._wanted))
                    yield Block(block, (Segment(piece, block.num_rows, partial(add, rows + 1)),))
                    rows += block.num_rows
            except (OSError, pa.ArrowInvalid) as error:
                raise _damaged(piece.path, error) from error
        ledger.read(piece, rows)

    def _expect(self, path: str, schema: pa.Schema) -> None:
        found = dict(zip(column_names(path, schema.names), schema, strict=True))
        lacking = sorted(set(self._wanted) - set(found))
        if lacking:
            raise InputError(
                f"{path}: expected the columns of {self._first}, received none named {', '.join(lacking)}",
                "give all files of the input the same columns, or name those that all have in data.columns",
            )
        for name, field in self._wanted.items():
            _refuse_nested(path, name, found[name])
            received = found[name].type
            # A column of nulls fits to any other.
            untyped = pa.types.is_null(received) or pa.types.is_null(field.type)
            if is_list(received) != is_list(field.type) and not untyped:
                raise InputError(
                    f"{path}: expected the column {name} as in {self._first} ({field.type}), received {received}",
                    "write it in the same way in all files",
                )


def columns(path: str) -> dict[str, pa.Field]:
    """The columns of a file, by the name that the config knows them by.

    Raises:
      InputError: it is no Parquet file.
    """
    with _opened(path) as file:
        schema = file.schema_arrow
    return dict(zip(column_names(path, schema.names), schema, strict=True))


@contextmanager
def _opened(path: str) -> Iterator[parquet.ParquetFile]:
    """A Parquet file, closed at the end; what is none is refused by name."""
    with source.open_binary(path) as file:
        try:
            opened = parquet.ParquetFile(file)
        except (OSError, pa.ArrowInvalid) as error:
            raise _damaged(path, error) from error
        yield opened


def _damaged(path: str, error: Exception) -> InputError:
    told = str(error).splitlines()[0]
    return InputError(f"{path} is no Parquet file, or a damaged one: {told}", "fetch or write the file again")


def _refuse_nested(path: str, name: str, field: pa.Field) -> None:
    if is_nested(field.type):
        raise InputError(
            f"{path}: the column {name} is nested ({field.type}): expected numbers, text, dates, or lists of these",
            "flatten it before, or leave it out: name the other columns in data.columns",
        )
