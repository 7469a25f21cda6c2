"""Write a table of any length block by block, and recognise a table that was written before.

The suffix of the file determines the format: `.csv` or `.parquet`. Only one block is held in memory.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

from components.base.errors import InputError
from data.output import atomic

BLOCK = 1 << 17
"""Rows per block. In Parquet, a block is a row group."""


def blocks(rows: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) for each block of a table of `rows` rows; a block ends with row `stop - 1`."""
    for start in range(0, rows, BLOCK):
        yield start, min(start + BLOCK, rows)


@contextmanager
def table_file(path: Path, schema: pa.Schema) -> Iterator[csv.CSVWriter | parquet.ParquetWriter]:
    """Yield a writer with `write_table(table)`; the file appears under its name, complete, if the block succeeds."""
    with atomic(path) as part:
        writer = csv.CSVWriter if _suffix(path) == ".csv" else parquet.ParquetWriter
        with writer(str(part), schema) as sink:
            yield sink


def is_written(path: Path, rows: int, block: Callable[[int, int], pa.Table]) -> bool:
    """Return whether `path` is the table of `rows` rows that `block(start, stop)` makes.

    The first and the last block are made again and compared with the blocks in the file. This detects another number of
    rows, another seed, a changed simulator and a truncated file, without a separate record that could become outdated.
    """
    ends = list(blocks(rows))
    first, last = block(*ends[0]), block(*ends[-1])
    compare = _same_csv if _suffix(path) == ".csv" else _same_parquet
    try:
        return compare(path, first, last, rows)
    except (OSError, pa.ArrowInvalid):
        return False


def _same_csv(path: Path, first: pa.Table, last: pa.Table, rows: int) -> bool:
    head = _csv_bytes(first, include_header=True)
    tail = _csv_bytes(last, include_header=False)
    size = path.stat().st_size
    if rows <= BLOCK:
        return size == len(head) and path.read_bytes() == head
    if size < len(head) + len(tail):
        return False
    with path.open("rb") as file:
        same_head = file.read(len(head)) == head
        file.seek(size - len(tail))
        return same_head and file.read() == tail


def _same_parquet(path: Path, first: pa.Table, last: pa.Table, rows: int) -> bool:
    with parquet.ParquetFile(path) as file:
        groups = file.num_row_groups
        if file.metadata.num_rows != rows or groups != len(list(blocks(rows))):
            return False
        ends = ((0, first), (groups - 1, last))
        # Read without threads, because some releases of pyarrow abort at exit while a reading thread ends.
        return all(file.read_row_group(group, use_threads=False).equals(table) for group, table in ends)


def _csv_bytes(table: pa.Table, include_header: bool) -> bytes:
    sink = io.BytesIO()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=include_header))
    return sink.getvalue()


def _suffix(path: Path) -> str:
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(
            f"{path}: expected a name that ends in .csv or .parquet, received {path.suffix or 'no suffix'}",
            "set --output to such a name",
        )
    return path.suffix
