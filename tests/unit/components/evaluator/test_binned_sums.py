"""Sums by slice and bin: the same however the rows are divided, merged and ordered."""

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
"""Bin, summand and slices of a row; whole numbers have exact sums."""


def counted(rows: Sequence[tuple[int, int, set[str]]]) -> Counted:
    """Return the sums of rows by one metric of two summands, and by one without any."""
    keys = sorted({each for _, _, of_row in rows for each in of_row})
    pairs = [(row, keys.index(each)) for row, (_, _, of_row) in enumerate(rows) for each in sorted(of_row)]
    at, numbers = np.array(pairs, np.int64).reshape(-1, 2).T
    slices = Slices([((key, 1),) for key in keys], at, numbers)
    bins = np.array([each for each, _, _ in rows], np.int64)
    values = np.array([[value, 1.0] for _, value, _ in rows]).reshape(len(rows), 2)
    metrics = [(bins, values), (np.zeros(len(rows), np.int64), np.empty((len(rows), 0)))]
    return Counted(slices.keys, [binned_sums.count(each, slices) for each in metrics])


def sums(parts: Sequence[Counted]) -> dict[Any, list[Any]]:
    """Slice → what each metric has of it."""
    keys, tables = binned_sums.merge(parts)
    found = {key: [table.select_slice(number) for table in tables] for number, key in enumerate(keys)}
    return {key: [[each.tolist() for each in of_metric] for of_metric in metrics] for key, metrics in found.items()}


def expected(rows: Sequence[tuple[int, int, set[str]]]) -> dict[Any, list[Any]]:
    """Return the same, one row at a time."""
    found: dict[Any, list[Any]] = {}
    for key in sorted({each for _, _, of_row in rows for each in of_row}):
        of_slice = [(each, value) for each, value, of_row in rows if key in of_row]
        bins = sorted({each for each, _ in of_slice})
        values = [[value for at, value in of_slice if at == each] for each in bins]
        first = [bins, [len(each) for each in values], [[sum(each), len(each)] for each in values]]
        found[((key, 1),)] = [first, [[0], [len(of_slice)], [[]]]]
    return found


@pytest.mark.parametrize("dense", [0, 1 << 20])
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, max_size=12), cuts=st.lists(st.integers(0, 12), max_size=3), seed=st.randoms())
def test_sums_do_not_depend_on_the_parts(rows: list[Any], cuts: list[int], seed: Any, dense: int) -> None:
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binned_sums, "_DENSE", dense)
        parts = [counted(rows[start:stop]) for start, stop in itertools.pairwise(ends)]
        seed.shuffle(parts)
        assert sums(parts) == expected(rows)
        keys, tables = binned_sums.merge(parts[1:])
        assert sums([Counted(keys, tables), parts[0]] if len(parts) > 1 else parts) == expected(rows)
