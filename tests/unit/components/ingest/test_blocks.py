"""Blocks of rows keep their origin, and counts of rows and bad rows are merged."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.ingest import blocks as rows
from components.ingest.blocks import BadRow, Block, BlockSource, FileRange, RowCounts, RowLog, drop_rows, merge_small

pytestmark = pytest.mark.both_lines


def block(path: str, values: list[Any], split: str | None = None, records: bool = False) -> Block:
    """Return a block with rows of a file. The positions of the rows start at 10."""
    columns = pa.RecordBatch.from_arrays([pa.array(values, None if None in values else pa.int64())], ["a"])
    serialized = pa.array([str(value).encode() for value in values], pa.binary()) if records else None
    return Block(columns, (BlockSource(FileRange(path, split=split), len(values), (10).__add__),), serialized)


def content(source: Block) -> list[tuple[Any, str, int]]:
    """Return value, file and position of every row."""
    origins = [source.origin(row) for row in range(source.columns.num_rows)]
    return [
        (value, file_range.path, position)
        for value, (file_range, position) in zip(source.columns.column(0).to_pylist(), origins, strict=True)
    ]


def test_origin_of_a_missing_row_is_an_error() -> None:
    with pytest.raises(IndexError):
        block("x", [1]).origin(1)


def test_small_blocks_are_merged_in_order() -> None:
    (merged,) = merge_small(
        [block("x", [1, 2], records=True), block("y", [3], records=True), block("x", [4], records=True)]
    )
    assert content(merged) == [(1, "x", 10), (2, "x", 11), (3, "y", 10), (4, "x", 10)]
    assert merged.records is not None
    assert merged.records.to_pylist() == [b"1", b"2", b"3", b"4"]
    assert list(merge_small([])) == []


def test_blocks_with_different_columns_or_splits_are_not_merged() -> None:
    blocks = [block("x", [1]), block("y", [None]), block("z", [2], "eval"), block("z", [3], "eval"), block("x", [4])]
    assert [content(merged) for merged in merge_small(blocks)] == [
        [(1, "x", 10)], [(None, "y", 10)], [(2, "z", 10), (3, "z", 10)], [(4, "x", 10)]
    ]  # fmt: skip


def test_large_blocks_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_SMALL", 16)
    blocks = [block("x", [1, 2]), block("y", [3]), block("z", [4]), block("z", [5])]
    assert [merged.columns.num_rows for merged in merge_small(blocks)] == [2, 2, 1]
    assert next(merge_small(blocks)) is blocks[0]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=4),
    st.lists(st.sets(st.integers(0, 15)), max_size=3),
)
def test_rows_keep_their_origin_when_rows_are_dropped(parts: list[list[int]], dropped: list[set[int]]) -> None:
    (remaining,) = merge_small(block(str(number), values, records=True) for number, values in enumerate(parts))
    expected = content(remaining)
    for dropped_rows in dropped:
        dropped_rows &= set(range(remaining.columns.num_rows))
        remaining = drop_rows(remaining, dropped_rows)
        expected = [row for number, row in enumerate(expected) if number not in dropped_rows]
        assert content(remaining) == expected
        assert remaining.records is not None
        assert remaining.records.to_pylist() == [str(value).encode() for value, _, _ in expected]
    assert drop_rows(block("x", [1]), [0]).records is None


def test_row_log_counts_rows_and_writes_bad_rows(tmp_path: Path) -> None:
    row_log = RowLog(str(tmp_path))
    first_range, second_range = FileRange("a.csv"), FileRange("a.csv", 1)
    row_log.add_range(first_range, 7, 8)
    row_log.add_bad_row(BadRow("a.csv", 0, 3, "odd", "x", {"x": "1"}))
    row_log.add_bad_row(BadRow("a.csv", 0, 2, "odd"))
    row_log.add_range(second_range, 5)
    row_log.add_bad_row(BadRow("a.csv", 1, 1, "odd", None, "1,2"))
    counts = row_log.close()
    assert (counts.rows, counts.bad) == (12, 3)
    assert counts.positions == {("a.csv", 0): 8, ("a.csv", 1): 5}
    assert [counts.position_in_file(bad) for bad in counts.first_bad] == [2, 3, 9]
    written = {
        key: [[json.loads(line) for line in Path(path).read_text().splitlines()] for path in paths]
        for key, paths in counts.quarantined.items()
    }
    assert written == {
        ("a.csv", 0): [
            [
                {"position": 3, "column": "x", "reason": "odd", "content": {"x": "1"}},
                {"position": 2, "column": None, "reason": "odd", "content": None},
            ]
        ],
        ("a.csv", 1): [[{"position": 1, "column": None, "reason": "odd", "content": "1,2"}]],
    }


def test_row_log_without_a_folder_does_not_write_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    row_log = RowLog(None)
    row_log.add_bad_row(BadRow("a.csv", 0, 1, "odd"))
    assert row_log.close().quarantined == {}
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_merged_counts_do_not_depend_on_the_order(data: st.DataObject) -> None:
    file_ranges = [FileRange(path, number) for path in "ab" for number in range(3)]
    places = {file_range: data.draw(st.lists(st.integers(1, 9), unique=True, max_size=4)) for file_range in file_ranges}
    all_counts = []
    for file_range in file_ranges:
        row_log = RowLog(None)
        row_log.add_range(file_range, 9)
        for position in places[file_range]:
            row_log.add_bad_row(BadRow(file_range.path, file_range.number, position, "odd"))
        all_counts.append(row_log.close())
    merged = RowCounts()
    for counts in data.draw(st.permutations(all_counts)):
        merged = counts.merge(merged) if data.draw(st.booleans()) else merged.merge(counts)
    expected = sorted(
        BadRow(file_range.path, file_range.number, position, "odd")
        for file_range in file_ranges
        for position in places[file_range]
    )
    assert (merged.rows, merged.bad) == (54, len(expected))
    assert list(merged.first_bad) == expected[:5]
    assert [merged.position_in_file(bad) for bad in merged.first_bad] == [
        9 * bad.range_number + bad.position for bad in expected[:5]
    ]
    assert all(
        merged.positions_before(path, number) == 9 * number for path, number in itertools.product("ab", range(4))
    )
