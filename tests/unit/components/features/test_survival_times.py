"""The intervals and hazards of a survival task, against sums over the rows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from components.features import survival_times
from components.features.survival_times import SurvivalTimesAccumulator

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(3)
ROWS = 600
TIMES = RANDOM.integers(0, 90, ROWS).astype(float)
EVENTS = (RANDOM.random(ROWS) < 0.4).astype(float)
WEIGHTS = RANDOM.uniform(0.5, 2, ROWS)


def accumulate(intervals: int, *columns: Array, parts: int = 1) -> list[list[float]]:
    """Return the lines of the file, from the merged states of some parts of the rows."""
    accumulator = SurvivalTimesAccumulator(intervals)
    states = [
        accumulator.add(accumulator.empty(), *(column[rows] for column in columns))
        for rows in np.array_split(np.arange(len(columns[0])), parts)
    ]
    content = accumulator.result(accumulator.prune(functools.reduce(accumulator.merge, states)))
    return [[float(number) for number in line.split()] for line in content.decode().splitlines()]


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("parts", [1, 7])
def test_hazards_are_events_by_observed_time(weights: Array | None, parts: int) -> None:
    given = np.ones(ROWS) if weights is None else weights
    lines = accumulate(5, TIMES, EVENTS, *([] if weights is None else [weights]), parts=parts)
    assert lines[:3] == [[ROWS], [0], [0]]
    starts = [0.0, *(end for end, _ in lines[3:-1])]
    counts = []
    for start, (end, hazard) in zip(starts, lines[3:], strict=True):
        last = end == lines[-1][0]
        inside = (start < TIMES if start else TIMES >= 0) & ((np.inf if last else end) >= TIMES)
        exposure = sum(
            weight * (min(time, np.inf if last else end) - start)
            for time, weight in zip(TIMES, given, strict=True)
            if time > start
        )
        counts.append((given * EVENTS)[inside].sum())
        np.testing.assert_allclose(hazard, counts[-1] / exposure, rtol=1e-9, atol=1e-12)
    assert lines[-1][0] == TIMES[EVENTS == 1].max()
    assert max(counts) < 1.3 * np.mean(counts), "all intervals have about the same number of events"


def test_rows_without_a_time_or_with_a_negative_time_are_counted() -> None:
    lines = accumulate(3, np.array([np.nan, -1.0, 2.0, 5.0]), np.array([1.0, 1.0, 1.0, 0.0]))
    assert lines == [[4], [1], [1], [2, 1 / 7]]


def test_events_at_time_zero_alone_do_not_make_an_interval() -> None:
    assert accumulate(3, np.zeros(4), np.ones(4)) == [[4], [0], [0]]
    # An event at time 0 counts in the first interval.
    assert accumulate(3, np.array([0.0, 0.0, 2.0]), np.ones(3)) == [[3], [0], [0], [2, 1.5]]


def test_there_are_at_most_as_many_intervals_as_times_of_events() -> None:
    lines = accumulate(20, np.repeat([1.0, 2.0, 9.0], 10), np.repeat([1.0, 1.0, 0.0], 10))
    assert [end for end, *_ in lines[3:]] == [1, 2]


@pytest.mark.parametrize("parts", [1, 2, 9])
def test_many_times_are_rounded_alike_in_any_order(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    monkeypatch.setattr(survival_times, "_MOST", 512)
    times = np.random.default_rng(1).exponential(30, 5000)
    events = np.arange(5000) % 3 == 0
    rounded = accumulate(6, times, events.astype(float), parts=parts)
    assert rounded == accumulate(6, times[::-1], events[::-1].astype(float), parts=5)
    monkeypatch.undo()
    np.testing.assert_allclose(rounded[3:], accumulate(6, times, events.astype(float))[3:], rtol=0.05, atol=0)
