"""Tests that a table written block by block is recognised if, and only if, it is unchanged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from components.base.errors import InputError
from data.tables import BLOCK, blocks, is_written, table_file

SCHEMA = pa.schema({"n": pa.int64(), "word": pa.string()})
ROWS = 2 * BLOCK + 5


def block(start, stop, shift=0):
    numbers = pa.array(np.arange(start, stop) + shift)
    return pa.table([numbers, numbers.cast(pa.string())], schema=SCHEMA)


def write(path, rows=ROWS):
    with table_file(path, SCHEMA) as sink:
        for start, stop in blocks(rows):
            sink.write_table(block(start, stop))


@pytest.fixture(scope="module", params=["csv", "parquet"])
def table_path(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / f"rows.{request.param}"
    write(path)
    return path


@pytest.mark.parametrize("rows", [1, BLOCK - 1, BLOCK, BLOCK + 1, ROWS])
def test_blocks_cover_all_rows_once(rows):
    bounds = list(blocks(rows))
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])]
    assert bounds[-1][1] == rows
    assert max(stop - start for start, stop in bounds) <= BLOCK


def test_written_table_is_recognised(table_path):
    assert is_written(table_path, ROWS, block)


def test_table_shorter_than_a_block_is_recognised(tmp_path):
    for path in (tmp_path / "rows.csv", tmp_path / "rows.parquet"):
        write(path, rows=3)
        assert is_written(path, 3, block)
        assert not is_written(path, 2, block)


@pytest.mark.parametrize("rows", [1, 2 * BLOCK, ROWS - 1, ROWS + 1, 10 * BLOCK])
def test_wrong_number_of_rows_is_reported(table_path, rows):
    assert not is_written(table_path, rows, block)


def test_changed_rows_are_reported(table_path):
    assert not is_written(table_path, ROWS, lambda start, stop: block(start, stop, shift=1))


def test_truncated_file_is_reported(table_path, tmp_path):
    path = tmp_path / table_path.name
    path.write_bytes(table_path.read_bytes()[:-3])
    assert not is_written(path, ROWS, block)


def test_empty_or_missing_file_is_reported(table_path, tmp_path):
    path = tmp_path / table_path.name
    assert not is_written(path, ROWS, block)
    path.touch()
    assert not is_written(path, ROWS, block)


def test_another_suffix_is_rejected(tmp_path):
    with pytest.raises(InputError, match=r"expected a name that ends in \.csv or \.parquet, received \.json"):
        is_written(tmp_path / "rows.json", 1, block)
    with pytest.raises(InputError, match="received no suffix"), table_file(tmp_path / "rows", SCHEMA):
        pass
