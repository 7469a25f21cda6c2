"""Sharing out rows between splits: by what is in them, and by nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.ingest import split


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def some(rows: int = 1000) -> pa.RecordBatch:
    random = np.random.default_rng(7)
    values = random.integers(-5, 5, rows)
    return batch(
        i=pa.array(values, pa.int64(), mask=values == 0),
        f=pa.array(random.normal(size=rows).astype(np.float32), mask=values == 1),
        s=pa.array([str(value).encode() for value in random.integers(0, 99, rows)], pa.binary(), mask=values == 2),
    )


def test_hashes_stay_what_they_are() -> None:
    # Fixed for all time: a row must not change sides when a library is upgraded.
    rows = batch(
        i=pa.array([1, -1, None], pa.int64()),
        f=pa.array([0.5, None, 1e30], pa.float32()),
        s=pa.array([b"x", b"", "é".encode()], pa.binary()),
    )
    assert split.hash_rows(rows).tolist() == GOLDEN


GOLDEN = [4068853127626490576, 7319373673017486083, 4150345133923375222]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=6), st.permutations(["i", "f", "s"]))
def test_neither_blocks_nor_the_order_of_columns_matter(cuts: list[int], order: list[str]) -> None:
    whole = some()
    bounds = sorted({0, *cuts, 1000})
    reordered = batch(**{name: whole.column(whole.schema.get_field_index(name)) for name in order})
    parts = [split.hash_rows(reordered.slice(low, high - low)) for low, high in itertools.pairwise(bounds)]
    np.testing.assert_array_equal(np.concatenate(parts), split.hash_rows(whole))


def test_rows_go_by_the_shares_of_the_splits() -> None:
    rows = batch(i=pa.array(np.arange(100_000)))
    counts = np.bincount(split.assign(rows, [7, 2, 1]))
    np.testing.assert_allclose(counts, [70_000, 20_000, 10_000], rtol=0.02)


@pytest.mark.parametrize("column", ["i", "f", "s"])
def test_every_column_has_a_say_unless_others_are_named(column: str) -> None:
    whole = some()
    names = [name for name in ("i", "f", "s") if name != column]
    fewer = batch(**{name: whole.column(whole.schema.get_field_index(name)) for name in names})
    assert (split.hash_rows(whole) != split.hash_rows(fewer)).mean() > 0.7
    np.testing.assert_array_equal(split.hash_rows(whole, by=names), split.hash_rows(fewer))


def test_the_same_value_in_another_column_is_another_row() -> None:
    rows = batch(a=pa.array([1, 2]), b=pa.array([2, 1]))
    assert len(set(split.hash_rows(rows).tolist())) == 2


def test_equal_values_hash_alike_however_they_are_written() -> None:
    nans = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)
    for values in (np.array([0.0, -0.0], np.float32), nans):
        assert len(set(split.hash_rows(batch(f=pa.array(values))).tolist())) == 1


def test_a_column_that_is_missing_throughout_changes_nothing() -> None:
    whole = some(10)
    wider = batch(**dict(zip(whole.schema.names, whole.columns, strict=True)), n=pa.nulls(10))
    np.testing.assert_array_equal(split.hash_rows(wider), split.hash_rows(whole))
