"""Parquet files are read by row groups and selected columns, and unsupported types are rejected."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from components.base.errors import InputError
from components.ingest import parquet_reader
from components.ingest.blocks import FileRange, RowCounts, RowLog
from components.ingest.parquet_reader import ParquetReader

pytestmark = pytest.mark.both_lines


def write(path: Path, table: pa.Table, **options: Any) -> str:
    pq.write_table(table, str(path), **options)
    return str(path)


def make_table(rows: int = 10) -> pa.Table:
    return pa.table(
        {"a": list(range(rows)), "b": [f"n{row}" for row in range(rows)], "c": [[row] for row in range(rows)]}
    )


def read(reader: ParquetReader, file_ranges: list[FileRange]) -> tuple[dict[str, list[Any]], list[int], RowCounts]:
    """Return the rows, their positions in the file and the counts."""
    row_log = RowLog(None)
    blocks = [block for file_range in file_ranges for block in reader.read(file_range, row_log)]
    counts = row_log.close()
    origins = [block.origin(row) for block in blocks for row in range(block.columns.num_rows)]
    positions = [at + counts.positions_before(origin.path, origin.number) for origin, at in origins]
    return pa.Table.from_batches([block.columns for block in blocks]).to_pydict(), positions, counts


def ranges_error(reader: ParquetReader, path: str) -> str:
    with pytest.raises(InputError) as raised:
        reader.ranges(path, None)
    return headline(raised.value)


def headline(error: InputError) -> str:
    """Return the headline of an error. Newer releases of Arrow call the field of a list `element` instead of `item`."""
    return error.headline.replace("list<element:", "list<item:")


def test_file_is_read_in_ranges_of_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(95)
    path = write(tmp_path / "1.parquet", table, row_group_size=10)
    reader = ParquetReader(path)
    (full,) = reader.ranges(path, None)
    assert (full.start, full.stop) == (0, 10)
    size = pq.ParquetFile(path).metadata.row_group(0).total_byte_size
    monkeypatch.setattr(parquet_reader, "_RANGE_BYTES", 2 * size)
    monkeypatch.setattr(parquet_reader, "_ROWS", 7)
    file_ranges = reader.ranges(path, "eval")
    assert len(file_ranges) > 3
    assert [file_range.number for file_range in file_ranges] == list(range(len(file_ranges)))
    assert {file_range.split for file_range in file_ranges} == {"eval"}
    rows, positions, counts = read(reader, file_ranges)
    assert rows == table.to_pydict()
    assert positions == list(range(1, 96))
    assert counts.rows == counts.positions_before(path, len(file_ranges)) == 95
    assert read(reader, [full])[0] == rows


def test_row_group_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 500_000
    random = np.random.default_rng(0).integers(-(2**62), 2**62, (2, rows))
    table = pa.table({"a": random[0], "b": random[1]})
    path = write(tmp_path / "1.parquet", table, row_group_size=rows, use_dictionary=False)
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).total_compressed_size > 3 << 20
    sizes: list[int] = []
    original = parquet_reader.file_io.open_binary

    @contextmanager
    def recording(name: str) -> Iterator[IO[bytes]]:
        with original(name) as file:
            yield cast("IO[bytes]", _Recording(file, sizes))

    reader = ParquetReader(path)
    monkeypatch.setattr(parquet_reader.file_io, "open_binary", recording)
    monkeypatch.setattr(parquet_reader, "_BUFFERS", 256 << 10)
    blocks = [block.columns for block in reader.read(FileRange(path, stop=1), RowLog(None))]
    assert pa.Table.from_batches(blocks).equals(table)
    # Arrow reads at least a page, which has 1 MiB.
    assert max(sizes) < 2 << 20


class _Recording(io.RawIOBase):
    """A file that records the number of bytes requested by every read."""

    def __init__(self, file: IO[bytes], sizes: list[int]) -> None:
        self._file, self._sizes = file, sizes

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int | None = -1) -> bytes:
        self._sizes.append(-1 if size is None else size)
        return self._file.read(-1 if size is None else size)


def test_first_range_is_the_first_row_group(tmp_path: Path) -> None:
    path = write(tmp_path / "1.parquet", make_table(95), row_group_size=10)
    reader = ParquetReader(path)
    assert read(reader, [reader.first_range(path, None)])[0] == make_table(10).to_pydict()


def test_only_selected_columns_are_read(tmp_path: Path) -> None:
    table = pa.table({"Trip Miles": [1], "n.m": [2], "s": [{"x": 1}], "n": [3]})
    path = write(tmp_path / "1.parquet", table)
    assert list(parquet_reader.columns(path)) == ["Trip_Miles", "n_m", "s", "n"]
    reader = ParquetReader(path, ["n", "Trip_Miles"])
    assert read(reader, reader.ranges(path, None))[0] == {"Trip_Miles": [1], "n": [3]}
    reader = ParquetReader(path, ["n_m"])
    assert read(reader, reader.ranges(path, None))[0] == {"n_m": [2]}


@pytest.mark.parametrize(
    ("values", "type_"),
    [([{"x": 1}], "struct<x: int64>"), ([[[1]]], "list<item: list<item: int64>>"), ([[{"x": 1}]], "list<item: struct")],
)
def test_nested_columns_are_rejected_unless_they_are_not_selected(
    tmp_path: Path, values: list[Any], type_: str
) -> None:
    path = write(tmp_path / "1.parquet", pa.table({"a": [1], "deep": values}))
    with pytest.raises(InputError) as raised:
        ParquetReader(path)
    assert headline(raised.value).startswith(f"{path}: the column deep is nested ({type_}")
    assert raised.value.headline.endswith("expected numbers, text, dates, or lists of these")
    assert raised.value.remedy == "flatten it, or name the other columns in data.columns"
    reader = ParquetReader(path, ["a"])
    assert read(reader, reader.ranges(path, None))[0] == {"a": [1]}
    # A later file is checked in the same way.
    first = write(tmp_path / "0.parquet", pa.table({"a": [1], "deep": [1]}))
    assert "the column deep is nested" in ranges_error(ParquetReader(first), path)


def test_files_with_other_columns_are_rejected(tmp_path: Path) -> None:
    first = write(tmp_path / "1.parquet", make_table())
    reader = ParquetReader(first)
    fewer = write(tmp_path / "2.parquet", pa.table({"c": [[1]], "x": [1]}))
    assert ranges_error(reader, fewer) == f"{fewer}: expected the columns of {first}, received none named a, b"
    assert ParquetReader(first, ["c"]).ranges(fewer, None)
    scalar = write(tmp_path / "3.parquet", pa.table({"a": [1], "b": ["x"], "c": [1]}))
    assert ranges_error(reader, scalar) == (
        f"{scalar}: expected the column c as in {first} (list<item: int64>), received int64"
    )


def test_compatible_differences_between_files_are_accepted(tmp_path: Path) -> None:
    first = write(tmp_path / "1.parquet", make_table())
    reader = ParquetReader(first)
    for number, table in enumerate(
        (
            # The order of columns, additional columns, types of numbers, text and lists, and missing values may differ.
            pa.table({"x": [1], "c": pa.array([["x"]], pa.large_list(pa.string())), "b": ["x"], "a": [0.5]}),
            pa.table({"a": pa.nulls(1), "b": pa.nulls(1), "c": pa.nulls(1)}),
        )
    ):
        path = write(tmp_path / f"other{number}.parquet", table)
        rows, _, _ = read(reader, reader.ranges(path, None))
        assert rows == table.select(["a", "b", "c"]).to_pydict()


def test_files_without_rows_are_rejected(tmp_path: Path) -> None:
    first = write(tmp_path / "1.parquet", make_table())
    empty = write(tmp_path / "2.parquet", make_table(0))
    without_row_groups = str(tmp_path / "3.parquet")
    with pq.ParquetWriter(without_row_groups, make_table().schema):
        pass
    for path in (empty, without_row_groups):
        assert ranges_error(ParquetReader(first), path) == f"{path} has no rows: it is a Parquet file of 0 rows"
        # The first range is read before the check, so it must not fail.
        reader = ParquetReader(path)
        assert list(reader.read(reader.first_range(path, None), RowLog(None))) == []


def test_file_that_is_not_parquet_is_rejected(tmp_path: Path) -> None:
    first = write(tmp_path / "1.parquet", make_table(1000), compression="none", use_dictionary=False)
    content = Path(first).read_bytes()
    for name, data in (("none", b"a,b\n1,2\n"), ("empty", b""), ("cut", content[:-100]), ("head", content[:100])):
        path = tmp_path / name
        path.write_bytes(data)
        expected = f"{path} is not a Parquet file, or a damaged one: "
        assert ranges_error(ParquetReader(first), str(path)).startswith(expected)
        with pytest.raises(InputError) as raised:
            ParquetReader(str(path))
        assert raised.value.headline.startswith(expected)
        assert raised.value.remedy == "fetch or write the file again"


def test_damage_inside_a_file_is_found_while_reading(tmp_path: Path) -> None:
    path = write(tmp_path / "1.parquet", make_table(1000), compression="gzip")
    reader = ParquetReader(path)
    file_ranges = reader.ranges(path, None)
    content = bytearray(Path(path).read_bytes())
    content[200:1200] = b"\xff" * 1000
    Path(path).write_bytes(content)
    with pytest.raises(InputError) as raised:
        read(reader, file_ranges)
    assert raised.value.headline.startswith(f"{path} is not a Parquet file, or a damaged one: ")
