"""The accumulator of a survival task: the intervals of time, and the hazard of all rows in each interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from components.features.accumulators import Numbers

_MOST = 1 << 17
"""Maximum number of distinct times in a state. Beyond it, times are rounded."""
_FLOAT32_BITS = 29
"""Bits of a float64's mantissa that a float32 lacks."""


class TimesState(NamedTuple):
    """The rows by time.

    Attributes:
      dropped_bits: Number of last bits of the times that are set to 0.
      times: Distinct times, ascending; [times].
      rows: Weights of the rows with this time; [times].
      events: Weights of those with an event; [times].
      counts: Numbers of all rows, of rows without a finite time, and of rows with a negative time.
    """

    dropped_bits: int
    times: Numbers
    rows: Numbers
    events: Numbers
    counts: tuple[int, int, int]


@dataclass(frozen=True)
class SurvivalTimesAccumulator:
    """See `analysis.SurvivalTimes`.

    The result does not depend on how the rows were divided into batches: times are rounded to the same number of bits
    in any order of merging, because a part of the times never needs more rounding than all times.
    """

    intervals: int

    def empty(self) -> TimesState:
        """See Accumulator."""
        return TimesState(0, np.empty(0), np.empty(0), np.empty(0), (0, 0, 0))

    def add(self, state: TimesState, times: Numbers, events: Numbers, weights: Numbers | None = None) -> TimesState:
        """Add the times of a batch, whether their events happened (1 or 0), and their weights; all of shape [n]."""
        # The label of the model is a float32.
        times = times.astype(np.float32).astype(np.float64)
        finite = np.isfinite(times)
        counts = (len(times), int((~finite).sum()), int((times[finite] < 0).sum()))
        counted = finite & (np.where(finite, times, -1) >= 0)
        if weights is None:
            weights = np.ones(len(times))
        else:
            counted &= np.isfinite(weights) & (weights > 0)
        rows = weights[counted]
        return self.merge(state, TimesState(0, times[counted], rows, rows * events[counted], counts))

    def merge(self, state: TimesState, other: TimesState) -> TimesState:
        """See Accumulator."""
        dropped_bits = max(state.dropped_bits, other.dropped_bits)
        times = _round(np.concatenate([state.times, other.times]), dropped_bits)
        rows, events = (np.concatenate(pair) for pair in ((state.rows, other.rows), (state.events, other.events)))
        while True:
            distinct, at = np.unique(times, return_inverse=True)
            if len(distinct) <= _MOST:
                break
            dropped_bits = max(_FLOAT32_BITS, dropped_bits + 1)
            times = _round(times, dropped_bits)
        all_rows, missing, negative = (count + more for count, more in zip(state.counts, other.counts, strict=True))
        return TimesState(
            dropped_bits, distinct, np.bincount(at, rows), np.bincount(at, events), (all_rows, missing, negative)
        )

    def prune(self, state: TimesState) -> TimesState:
        """See Accumulator."""
        return state

    def result(self, state: TimesState) -> bytes:
        """Return the content of the file."""
        ends = self._choose_ends(state)
        starts = np.append(0.0, ends)[:-1]
        # The last interval does not end.
        widths = np.diff(starts, append=np.inf)
        lines = [*map(str, state.counts)]
        for number, (start, end, width) in enumerate(zip(starts, ends, widths, strict=True)):
            exposure = float((state.rows * np.clip(state.times - start, 0, width)).sum())
            inside = (state.times > start if number else state.times >= 0) & (state.times <= start + width)
            lines.append(f"{float(end)!r} {float(state.events[inside].sum()) / exposure!r}")
        return "".join(f"{line}\n" for line in lines).encode()

    def _choose_ends(self, state: TimesState) -> Numbers:
        """Return the ends of the intervals, ascending: quantiles of the times of events, without 0."""
        happened = state.events > 0
        times, totals = state.times[happened], np.cumsum(state.events[happened])
        if not len(times):
            return np.empty(0)
        shares = np.arange(1, self.intervals + 1) / self.intervals
        # A sum of weights may differ from the exact sum in the last bits.
        chosen = np.searchsorted(totals, shares * totals[-1] * (1 - 1e-12))
        ends: Numbers = np.unique(times[chosen])
        return ends[ends > 0]


def _round(times: Numbers, dropped_bits: int) -> Numbers:
    """Set the last bits of non-negative times to 0."""
    return (times.view(np.int64) >> dropped_bits << dropped_bits).view(np.float64)
