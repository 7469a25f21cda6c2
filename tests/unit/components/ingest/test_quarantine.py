"""The bad rows of all workers in one file, in the order of the input."""

from __future__ import annotations

import gzip
from pathlib import Path

import bad_rows
import pytest

from components.ingest import quarantine
from components.ingest.rows import Account, BadRow, Ledger, Piece

pytestmark = pytest.mark.both_lines


def worker(folder: Path, pieces: dict[Piece, tuple[int, list[BadRow]]]) -> Account:
    """What a worker tells of some pieces, each with its rows and the bad ones among them."""
    ledger = Ledger(str(folder))
    for piece, (rows, bad) in pieces.items():
        ledger.read(piece, rows)
        for one in bad:
            ledger.bad(one)
    return ledger.close()


def write(account: Account, place_is: str, folder: Path) -> str:
    entries = [(*key, account.before(*key), path) for key, paths in account.quarantined.items() for path in paths]
    return quarantine.write(entries, place_is, str(folder))


@pytest.mark.parametrize("turn", [1, -1])
def test_bad_rows_stand_in_the_order_of_files_and_rows(tmp_path: Path, turn: int) -> None:
    first, second, other = Piece("a.csv"), Piece("a.csv", 1), Piece("b.csv")
    accounts = [
        # Of one piece two files may be written: another piece was read in between.
        worker(tmp_path, {other: (2, [BadRow("b.csv", 0, 2, "odd", "x", {"x": "é", "y": None})])}),
        worker(tmp_path, {second: (5, [BadRow("a.csv", 1, 4, "odd"), BadRow("a.csv", 1, 2, "odd", None, "1,2,3")])}),
        worker(tmp_path, {first: (7, [BadRow("a.csv", 0, 7, "odd")])}),
    ]
    merged = Account()
    for account in accounts[::turn]:
        merged = merged.merge(account)
    path = write(merged, "row", tmp_path)
    assert path == f"{tmp_path}/bad_rows.jsonl.gz"
    assert bad_rows.read(path) == [
        {"file": "a.csv", "row": 7, "reason": "odd"},
        {"file": "a.csv", "row": 9, "reason": "odd", "content": "1,2,3"},
        {"file": "a.csv", "row": 11, "reason": "odd"},
        {"file": "b.csv", "row": 2, "column": "x", "reason": "odd", "content": {"x": "é", "y": None}},
    ]
    assert "é" in gzip.decompress(Path(path).read_bytes()).decode()


def test_rows_of_a_piece_that_came_in_turns_are_put_in_order(tmp_path: Path) -> None:
    one, other = Piece("a.csv"), Piece("b.csv")
    ledger = Ledger(str(tmp_path))
    for piece, place in ((one, 3), (other, 1), (one, 2), (other, 4)):
        ledger.bad(BadRow(piece.path, 0, place, "odd"))
    ledger.read(one, 3)
    ledger.read(other, 4)
    found = bad_rows.read(write(ledger.close(), "offset", tmp_path))
    assert [(entry["file"], entry["offset"]) for entry in found] == [
        ("a.csv", 2), ("a.csv", 3), ("b.csv", 1), ("b.csv", 4)
    ]  # fmt: skip


def test_the_file_is_the_same_whenever_it_is_written(tmp_path: Path) -> None:
    account = worker(tmp_path, {Piece("a.csv"): (2, [BadRow("a.csv", 0, 2, "odd")])})
    first = Path(write(account, "row", tmp_path)).read_bytes()
    (tmp_path / "again").mkdir()
    assert Path(write(account, "row", tmp_path / "again")).read_bytes()[10:] == first[10:]
    assert first[4:8] == bytes(4)
