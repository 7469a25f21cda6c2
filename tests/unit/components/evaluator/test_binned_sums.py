"""Sums by slice and bin do not depend on how the rows are divided, merged and ordered."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.evaluator import binned_sums
from components.evaluator.binned_sums import Counted, Slices

BINS = [-3, 0, 1, 10_001, np.iinfo(np.int64).min]
ROW = st.tuples(st.sampled_from(BINS), st.integers(-8, 8), st.sets(st.sampled_from("abc")))
"""Bin, summand and slices of a row. The summands are integers because sums of integers are exact."""


def count_rows(rows: Sequence[tuple[int, int, set[str]]]) -> Counted:
    """Return the sums of rows for two metrics: the first has two summands, the second does not have any."""
    keys = sorted({name for _, _, row_slices in rows for name in row_slices})
    pairs = [(row, keys.index(name)) for row, (_, _, row_slices) in enumerate(rows) for name in sorted(row_slices)]
    at, numbers = np.array(pairs, np.int64).reshape(-1, 2).T
    slices = Slices([((key, 1),) for key in keys], at, numbers)
    bins = np.array([row_bin for row_bin, _, _ in rows], np.int64)
    values = np.array([[value, 1.0] for _, value, _ in rows]).reshape(len(rows), 2)
    metrics = [(bins, values), (np.zeros(len(rows), np.int64), np.empty((len(rows), 0)))]
    return Counted(slices.keys, [binned_sums.count(metric, slices) for metric in metrics])


def merge_sums(parts: Sequence[Counted]) -> dict[Any, list[Any]]:
    """Merge partial sums; return the bins, row counts and summands of every metric by slice."""
    keys, tables = binned_sums.merge(parts)
    merged = {key: [table.select_slice(number) for table in tables] for number, key in enumerate(keys)}
    return {key: [[array.tolist() for array in arrays] for arrays in metrics] for key, metrics in merged.items()}


def compute_expected(rows: Sequence[tuple[int, int, set[str]]]) -> dict[Any, list[Any]]:
    """Compute the result of `merge_sums` in plain Python, one row at a time."""
    results: dict[Any, list[Any]] = {}
    for key in sorted({name for _, _, row_slices in rows for name in row_slices}):
        slice_rows = [(row_bin, value) for row_bin, value, row_slices in rows if key in row_slices]
        bins = sorted({row_bin for row_bin, _ in slice_rows})
        values = [[value for at, value in slice_rows if at == row_bin] for row_bin in bins]
        first = [
            bins,
            [len(bin_values) for bin_values in values],
            [[sum(bin_values), len(bin_values)] for bin_values in values],
        ]
        results[((key, 1),)] = [first, [[0], [len(slice_rows)], [[]]]]
    return results


@pytest.mark.parametrize("dense", [0, 1 << 20])
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, max_size=12), cuts=st.lists(st.integers(0, 12), max_size=3), seed=st.randoms())
def test_sums_do_not_depend_on_the_parts(rows: list[Any], cuts: list[int], seed: Any, dense: int) -> None:
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binned_sums, "_DENSE", dense)
        parts = [count_rows(rows[start:stop]) for start, stop in itertools.pairwise(ends)]
        seed.shuffle(parts)
        assert merge_sums(parts) == compute_expected(rows)
        keys, tables = binned_sums.merge(parts[1:])
        assert merge_sums([Counted(keys, tables), parts[0]] if len(parts) > 1 else parts) == compute_expected(rows)
