"""Blocks of rows that keep their origin, and the account of what became of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.ingest import rows
from components.ingest.rows import Account, BadRow, Block, Ledger, Piece, Segment, together, without

pytestmark = pytest.mark.both_lines


def block(path: str, values: list[Any], split: str | None = None, records: bool = False) -> Block:
    """Rows of a file whose numbers start at 10."""
    columns = pa.RecordBatch.from_arrays([pa.array(values, None if None in values else pa.int64())], ["a"])
    held = pa.array([str(value).encode() for value in values], pa.binary()) if records else None
    return Block(columns, (Segment(Piece(path, split=split), len(values), (10).__add__),), held)


def content(one: Block) -> list[tuple[Any, str, int]]:
    """The value, the file and the place of each row."""
    origins = [one.origin(row) for row in range(one.columns.num_rows)]
    return [
        (value, piece.path, place)
        for value, (piece, place) in zip(one.columns.column(0).to_pylist(), origins, strict=True)
    ]


def test_a_row_that_is_not_there_has_no_origin() -> None:
    with pytest.raises(IndexError):
        block("x", [1]).origin(1)


def test_small_blocks_are_put_together_in_their_order() -> None:
    (one,) = together([block("x", [1, 2], records=True), block("y", [3], records=True), block("x", [4], records=True)])
    assert content(one) == [(1, "x", 10), (2, "x", 11), (3, "y", 10), (4, "x", 10)]
    assert one.records is not None
    assert one.records.to_pylist() == [b"1", b"2", b"3", b"4"]
    assert list(together([])) == []


def test_blocks_of_other_columns_or_another_split_stay_apart() -> None:
    blocks = [block("x", [1]), block("y", [None]), block("z", [2], "eval"), block("z", [3], "eval"), block("x", [4])]
    assert [content(one) for one in together(blocks)] == [
        [(1, "x", 10)], [(None, "y", 10)], [(2, "z", 10), (3, "z", 10)], [(4, "x", 10)]
    ]  # fmt: skip


def test_large_blocks_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_SMALL", 16)
    blocks = [block("x", [1, 2]), block("y", [3]), block("z", [4]), block("z", [5])]
    assert [one.columns.num_rows for one in together(blocks)] == [2, 2, 1]
    assert next(together(blocks)) is blocks[0]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=4),
    st.lists(st.sets(st.integers(0, 15)), max_size=3),
)
def test_rows_keep_their_origin_whatever_is_taken_out(parts: list[list[int]], gone: list[set[int]]) -> None:
    (one,) = together(block(str(number), values, records=True) for number, values in enumerate(parts))
    expected = content(one)
    for chosen in gone:
        chosen &= set(range(one.columns.num_rows))
        one = without(one, chosen)
        expected = [row for number, row in enumerate(expected) if number not in chosen]
        assert content(one) == expected
        assert one.records is not None
        assert one.records.to_pylist() == [str(value).encode() for value, _, _ in expected]
    assert without(block("x", [1]), [0]).records is None


def test_a_ledger_counts_rows_and_writes_the_bad_ones(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    one, other = Piece("a.csv"), Piece("a.csv", 1)
    ledger.read(one, 7, 8)
    ledger.bad(BadRow("a.csv", 0, 3, "odd", "x", {"x": "1"}))
    ledger.bad(BadRow("a.csv", 0, 2, "odd"))
    ledger.read(other, 5)
    ledger.bad(BadRow("a.csv", 1, 1, "odd", None, "1,2"))
    account = ledger.close()
    assert (account.rows, account.bad) == (12, 3)
    assert account.spans == {("a.csv", 0): 8, ("a.csv", 1): 5}
    assert [account.place(bad) for bad in account.first] == [2, 3, 9]
    written = {
        key: [[json.loads(line) for line in Path(path).read_text().splitlines()] for path in paths]
        for key, paths in account.quarantined.items()
    }
    assert written == {
        ("a.csv", 0): [
            [
                {"place": 3, "column": "x", "reason": "odd", "content": {"x": "1"}},
                {"place": 2, "column": None, "reason": "odd", "content": None},
            ]
        ],
        ("a.csv", 1): [[{"place": 1, "column": None, "reason": "odd", "content": "1,2"}]],
    }


def test_a_ledger_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(None)
    ledger.bad(BadRow("a.csv", 0, 1, "odd"))
    assert ledger.close().quarantined == {}
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_accounts_are_the_same_in_whatever_order_they_are_merged(data: st.DataObject) -> None:
    pieces = [Piece(path, number) for path in "ab" for number in range(3)]
    places = {piece: data.draw(st.lists(st.integers(1, 9), unique=True, max_size=4)) for piece in pieces}
    accounts = []
    for piece in pieces:
        ledger = Ledger(None)
        ledger.read(piece, 9)
        for place in places[piece]:
            ledger.bad(BadRow(piece.path, piece.number, place, "odd"))
        accounts.append(ledger.close())
    merged = Account()
    for account in data.draw(st.permutations(accounts)):
        merged = account.merge(merged) if data.draw(st.booleans()) else merged.merge(account)
    expected = sorted(BadRow(piece.path, piece.number, place, "odd") for piece in pieces for place in places[piece])
    assert (merged.rows, merged.bad) == (54, len(expected))
    assert list(merged.first) == expected[:5]
    assert [merged.place(bad) for bad in merged.first] == [9 * bad.piece + bad.place for bad in expected[:5]]
    assert all(merged.before(path, number) == 9 * number for path, number in itertools.product("ab", range(4)))
