"""Bad rows of all workers are written to one file in the order of the input."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from components.ingest import quarantine
from components.ingest.blocks import BadRow, FileRange, RowCounts, RowLog
from tests.support.data import bad_rows

pytestmark = pytest.mark.both_lines


def log_ranges(folder: Path, file_ranges: dict[FileRange, tuple[int, list[BadRow]]]) -> RowCounts:
    """Log ranges with their number of rows and their bad rows; return the counts."""
    row_log = RowLog(str(folder))
    for file_range, (rows, bad) in file_ranges.items():
        row_log.add_range(file_range, rows)
        for bad_row in bad:
            row_log.add_bad_row(bad_row)
    return row_log.close()


def write(counts: RowCounts, position_unit: str, folder: Path) -> str:
    entries = [
        (*key, counts.positions_before(*key), path) for key, paths in counts.quarantined.items() for path in paths
    ]
    return quarantine.write(entries, position_unit, str(folder))


@pytest.mark.parametrize("turn", [1, -1])
def test_quarantine_keeps_the_order_of_files_and_rows(tmp_path: Path, turn: int) -> None:
    first, second, other_file = FileRange("a.csv"), FileRange("a.csv", 1), FileRange("b.csv")
    all_counts = [
        # A range may have two files if another range was read in between.
        log_ranges(tmp_path, {other_file: (2, [BadRow("b.csv", 0, 2, "odd", "x", {"x": "é", "y": None})])}),
        log_ranges(
            tmp_path, {second: (5, [BadRow("a.csv", 1, 4, "odd"), BadRow("a.csv", 1, 2, "odd", None, "1,2,3")])}
        ),
        log_ranges(tmp_path, {first: (7, [BadRow("a.csv", 0, 7, "odd")])}),
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


def test_interleaved_rows_of_ranges_are_sorted(tmp_path: Path) -> None:
    first, second = FileRange("a.csv"), FileRange("b.csv")
    row_log = RowLog(str(tmp_path))
    for file_range, position in ((first, 3), (second, 1), (first, 2), (second, 4)):
        row_log.add_bad_row(BadRow(file_range.path, 0, position, "odd"))
    row_log.add_range(first, 3)
    row_log.add_range(second, 4)
    result = bad_rows.read(write(row_log.close(), "offset", tmp_path))
    assert [(entry["file"], entry["offset"]) for entry in result] == [
        ("a.csv", 2), ("a.csv", 3), ("b.csv", 1), ("b.csv", 4)
    ]  # fmt: skip


def test_content_of_the_file_is_reproducible(tmp_path: Path) -> None:
    counts = log_ranges(tmp_path, {FileRange("a.csv"): (2, [BadRow("a.csv", 0, 2, "odd")])})
    first = Path(write(counts, "row", tmp_path)).read_bytes()
    (tmp_path / "again").mkdir()
    assert Path(write(counts, "row", tmp_path / "again")).read_bytes()[10:] == first[10:]
    assert first[4:8] == bytes(4)
