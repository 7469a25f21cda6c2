"""Row groups of Parquet files are listed from the footers and read one at a time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from components.base.errors import MachineError
from components.data import row_groups
from components.data.row_groups import is_parquet, read

pytestmark = pytest.mark.both_lines

TABLE = pa.table(
    {
        "count": pa.array([[1], [2], [3]], pa.large_list(pa.int64())),
        "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.large_list(pa.float32())),
        "text": pa.array([[b"a"], [b"b"], [b"c"]], pa.large_list(pa.large_binary())),
    }
)


def write(path: Path, rows: int) -> str:
    parquet.write_table(TABLE.slice(0, rows), path, row_group_size=2)
    return str(path)


def test_row_groups_are_listed_with_rows_and_memory(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{rows}.parquet", rows) for rows in (3, 0, 1)]
    groups = row_groups.row_groups(paths)
    assert [group[:3] for group in groups] == [(paths[0], 0, 2), (paths[0], 1, 1), (paths[2], 0, 1)]
    assert [group.memory for group in groups] == [2 * 80, 80, 80]


def test_columns_are_read_in_the_given_order(tmp_path: Path) -> None:
    group = row_groups.row_groups([write(tmp_path / "rows.parquet", 3)])[1]
    batch = read(group, ["text", "count"])
    assert batch.to_pydict() == {"text": [[b"c"]], "count": [[3]]}
    assert batch.schema.field("text").type == pa.large_list(pa.large_binary())


def test_missing_column_is_named(tmp_path: Path) -> None:
    (group,) = row_groups.row_groups([write(tmp_path / "rows.parquet", 1)])
    with pytest.raises(MachineError, match="expected the columns count, tip, received a file without tip"):
        read(group, ["count", "tip"])


def test_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and no footer")
    with pytest.raises(MachineError, match=r"rows.parquet: the examples cannot be read"):
        row_groups.row_groups([str(path)])


def test_parquet_is_recognized_by_the_first_bytes(tmp_path: Path) -> None:
    assert is_parquet(write(tmp_path / "rows", 1))
    (tmp_path / "other").write_bytes(b"\x1f\x8b")
    assert not is_parquet(str(tmp_path / "other"))
