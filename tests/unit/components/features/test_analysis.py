"""What the analysis finds in a column, however its rows come in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from components.features.analysis import _Distinct, _Numbers


def found(keep: Any, *batches: Any) -> list[float]:
    """Half of the batches in one state, half in another, merged."""
    states = [keep.empty(), keep.empty()]
    for number, batch in enumerate(batches):
        states[number % 2] = keep.add(states[number % 2], np.asarray(batch, np.float32))
    result: list[float] = keep.result(keep.merge(*states))
    assert len(result) == keep.width
    return result


@settings(max_examples=50, deadline=None)
@given(st.lists(arrays.arrays(np.float32, st.integers(0, 20), elements=st.floats(-1e6, 1e6, width=32)), max_size=5))
def test_moments_and_extremes_are_those_of_all_rows(batches: list[Any]) -> None:
    whole = np.concatenate([[], *batches])
    expected = [whole.mean(), whole.std() or 1.0, whole.min(), whole.max()] if len(whole) else [0, 1, 0, 0]
    assert found(_Numbers(), *batches) == pytest.approx(expected, rel=1e-6, abs=1e-3)


def test_edges_of_an_even_column_are_its_quantiles() -> None:
    assert found(_Distinct(4), range(1000), range(1000, 2001)) == pytest.approx([0, 500, 1000, 1500, 2000], abs=5)


def test_a_value_that_is_nearly_always_there_leaves_the_tail_its_edges() -> None:
    tail = np.random.default_rng(0).lognormal(3, 2, 1000)
    edges = found(_Distinct(16), np.zeros(9000), tail)
    assert edges[0] == 0
    assert edges[-1] == pytest.approx(tail.max())
    # Plain quantiles would give 15 of 17 edges to 0.
    assert np.diff(edges).min() > 0
    in_bins, _ = np.histogram(tail, edges)
    assert in_bins.min() >= 40


def test_a_column_of_few_values_has_an_edge_at_each_and_bins_that_nothing_lies_in() -> None:
    assert found(_Distinct(4), [3, 1, 1], [1, 2]) == [1, 2, 3, 3, 3]
    assert found(_Distinct(2), [7] * 10) == [7, 7, 7]
    assert found(_Distinct(2)) == [0, 0, 0]
