"""Flipped bits in Parquet files of examples are detected, and pyarrow can read the files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from components.base.errors import MachineError
from components.data import row_groups
from components.data.checked_parquet import CheckedFile
from components.data.examples import BATCH_ROWS, Examples, ParquetWriter

pytestmark = pytest.mark.both_lines

SCHEMA = pa.schema([("number", pa.large_list(pa.float32())), ("text", pa.large_list(pa.large_binary()))])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """Return a file with three row groups of random numbers, and its rows."""
    path = tmp_path_factory.mktemp("examples") / "1.parquet"
    random = np.random.default_rng(2)
    writer, batches = ParquetWriter(str(path), SCHEMA), []
    for rows in (BATCH_ROWS, BATCH_ROWS, 10):
        numbers = random.normal(size=rows).astype(np.float32)
        offsets = np.arange(rows + 1)
        texts = pa.array([b"text %d" % number for number in random.integers(0, 99, rows)], pa.large_binary())
        arrays = [pa.LargeListArray.from_arrays(offsets, values) for values in (pa.array(numbers), texts)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        writer.write(batches[-1])
    writer.close()
    return path, pa.Table.from_batches(batches)


def read(data: bytes, columns: list[str] | None = None) -> pa.Table:
    return parquet.ParquetFile(CheckedFile(io.BytesIO(data))).read(columns)


def test_every_reader_returns_the_written_rows(written: tuple[Path, pa.Table]) -> None:
    path, table = written
    assert parquet.read_table(path).equals(table), "pyarrow skips the checksums"
    assert pa.Table.from_batches(Examples([str(path)], "parquet").batches()).equals(table)
    assert read(path.read_bytes(), ["text"]).equals(table.select(["text"]))
    file, data = CheckedFile(io.BytesIO(path.read_bytes())), path.read_bytes()
    for start, size in ((0, 10), (4, 1), (len(data) // 2, 50_000), (len(data) - 9, 9), (len(data), 5), (3, -1)):
        file.seek(start)
        assert file.read(size) == data[start : start + size if size >= 0 else None]
        assert file.tell() == min(len(data), start + size) if size >= 0 else len(data)


def test_flipped_bits_are_detected(written: tuple[Path, pa.Table]) -> None:
    path, table = written
    data, random = path.read_bytes(), np.random.default_rng(3)
    detected = 0
    for bit in [*random.integers(0, 8 * len(data), 60), *range(8 * (len(data) - 40), 8 * len(data), 5)]:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            received = read(bytes(damaged))
        except (OSError, pa.ArrowException):
            detected += 1
        else:
            # The flipped bit hid the checksums, so the file is read without verification. The rows are intact.
            assert received.equals(table)
    assert detected > 100


def test_readers_of_examples_report_damage(written: tuple[Path, pa.Table], tmp_path: Path) -> None:
    path, _ = written
    metadata = parquet.ParquetFile(path).metadata
    column = metadata.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    # Damage the numbers, so that a reader without checksums would return wrong numbers.
    data[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size // 2] ^= 1
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(data)
    with pytest.raises(MachineError, match="do not match their checksum"):
        list(Examples([str(damaged)], "parquet").batches())
    first, second, _ = row_groups.row_groups([str(damaged)])
    assert row_groups.read(first, ["text"]).num_rows == BATCH_ROWS
    assert row_groups.read(second, ["number"]).num_rows == BATCH_ROWS
    with pytest.raises(MachineError, match="do not match their checksum"):
        row_groups.read(first, ["number"])


def test_files_without_checksums_are_read(written: tuple[Path, pa.Table], tmp_path: Path) -> None:
    parquet.write_table(written[1], tmp_path / "1")
    assert read((tmp_path / "1").read_bytes()).equals(written[1])
    for content in (b"", b"PAR1", b"\xff\xff\xff\xffPAR1", b"no Parquet"):
        assert CheckedFile(io.BytesIO(content)).read() == content
