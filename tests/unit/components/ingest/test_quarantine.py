"""The bad rows of all workers in one file, in the order of the input."""

from __future__ import annotations

import gzip
from pathlib import Path

import bad_rows
import pytest

from components.ingest import quarantine
from components.ingest.blocks import BadRow, FileRange, RowCounts, RowLog

pytestmark = pytest.mark.both_lines


def worker(folder: Path, file_ranges: dict[FileRange, tuple[int, list[BadRow]]]) -> RowCounts:
    """Log some ranges, each with its number of rows and its bad rows."""
    row_log = RowLog(str(folder))
    for file_range, (rows, bad) in file_ranges.items():
        row_log.add_range(file_range, rows)
        for one in bad:
            row_log.add_bad_row(one)
    return row_log.close()


def write(counts: RowCounts, position_unit: str, folder: Path) -> str:
    entries = [
        (*key, counts.positions_before(*key), path) for key, paths in counts.quarantined.items() for path in paths
    ]
    return quarantine.write(entries, position_unit, str(folder))


@pytest.mark.parametrize("turn", [1, -1])
def test_quarantine_keeps_the_order_of_files_and_rows(tmp_path: Path, turn: int) -> None:
    first, second, other = FileRange("a.csv"), FileRange("a.csv", 1), FileRange("b.csv")
    all_counts = [
        # One range may have two files, if another range was read in between.
        worker(tmp_path, {other: (2, [BadRow("b.csv", 0, 2, "odd", "x", {"x": "é", "y": None})])}),
        worker(tmp_path, {second: (5, [BadRow("a.csv", 1, 4, "odd"), BadRow("a.csv", 1, 2, "odd", None, "1,2,3")])}),
        worker(tmp_path, {first: (7, [BadRow("a.csv", 0, 7, "odd")])}),
    ]
    merged = RowCounts()
    for counts in all_counts[::turn]:
        merged = merged.merge(counts)
    path = write(merged, "row", tmp_path)
    assert path == f"{tmp_path}/bad_rows.jsonl.gz"
    assert bad_rows.read(path) == [
        {"file": "a.csv", "row": 7, "reason": "odd"},
        {"file": "a.csv", "row": 9, "reason": "odd", "content": "1,2,3"},
        {"file": "a.csv", "row": 11, "reason": "odd"},
        {"file": "b.csv", "row": 2, "column": "x", "reason": "odd", "content": {"x": "é", "y": None}},
    ]
    assert "é" in gzip.decompress(Path(path).read_bytes()).decode()


def test_rows_of_a_range_that_came_in_turns_are_put_in_order(tmp_path: Path) -> None:
    one, other = FileRange("a.csv"), FileRange("b.csv")
    row_log = RowLog(str(tmp_path))
    for file_range, position in ((one, 3), (other, 1), (one, 2), (other, 4)):
        row_log.add_bad_row(BadRow(file_range.path, 0, position, "odd"))
    row_log.add_range(one, 3)
    row_log.add_range(other, 4)
    result = bad_rows.read(write(row_log.close(), "offset", tmp_path))
    assert [(entry["file"], entry["offset"]) for entry in result] == [
        ("a.csv", 2), ("a.csv", 3), ("b.csv", 1), ("b.csv", 4)
    ]  # fmt: skip


def test_file_is_the_same_whenever_it_is_written(tmp_path: Path) -> None:
    counts = worker(tmp_path, {FileRange("a.csv"): (2, [BadRow("a.csv", 0, 2, "odd")])})
    first = Path(write(counts, "row", tmp_path)).read_bytes()
    (tmp_path / "again").mkdir()
    assert Path(write(counts, "row", tmp_path / "again")).read_bytes()[10:] == first[10:]
    assert first[4:8] == bytes(4)
