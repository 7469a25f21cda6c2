"""Statistics of consecutive values that end at every row, for windows of different lengths, without a loop over rows.

The values of a window are combined from blocks of 1, 2, 4, ... values, so that a window of n values needs log2(n)
steps, and a sum never contains values outside the window: a difference of cumulative sums would lose the digits of a
series of small numbers after a series of large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
_Moments: TypeAlias = tuple[Floats, Floats, Floats]
"""Number of values, their mean, and the sum of their squared deviations from it; each [rows]."""
_State = TypeVar("_State", Floats, _Moments)


def moments(values: Floats, lengths: Ints, rows: Ints) -> _Moments:
    """Return number, mean and sum of squared deviations of the values in windows; [windows]. NaN is ignored.

    Source: T. F. Chan, G. H. Golub and R. J. LeVeque, Updating formulae and a pairwise algorithm for computing sample
    variances, 1979.

    Args:
      values: Values; [rows].
      lengths: Numbers of consecutive values in the windows, at least 1; [windows].
      rows: Last row of every window; [windows].
    """
    known = ~np.isnan(values)
    state = (known.astype(np.float64), np.where(known, values, 0.0), np.zeros(len(values)))
    empty = (np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows)))

    def take(blocks: _Moments, at: Ints) -> _Moments:
        count, mean, deviations = blocks
        return count[at], mean[at], deviations[at]

    def select(is_selected: npt.NDArray[np.bool_], first: _Moments, second: _Moments) -> _Moments:
        count, mean, deviations = (np.where(is_selected, *pair) for pair in zip(first, second, strict=True))
        return count, mean, deviations

    return _combine(state, empty, lengths, rows, _merge, take, select)


def extremes(values: Floats, lengths: Ints, rows: Ints, merge: Callable[[Floats, Floats], Floats]) -> Floats:
    """Return the minimum or maximum of the values in windows, [windows]; NaN without values.

    Args:
      values: Values; [rows].
      lengths: See `moments`.
      rows: See `moments`.
      merge: `numpy.fmin` or `numpy.fmax`, which ignore NaN.
    """
    empty = np.full(len(rows), np.nan)
    return _combine(values, empty, lengths, rows, merge, lambda blocks, at: blocks[at], np.where)


def _combine(
    blocks: _State,
    result: _State,
    lengths: Ints,
    rows: Ints,
    merge: Callable[[_State, _State], _State],
    take: Callable[[_State, Ints], _State],
    select: Callable[[npt.NDArray[np.bool_], _State, _State], _State],
) -> _State:
    """Combine the blocks that make up every window: one block for every bit of its length."""
    at = rows.copy()
    count = len(blocks[0]) if isinstance(blocks, tuple) else len(blocks)
    for size in _sizes(int(lengths.max(initial=0))):
        is_part = (lengths & size) > 0
        # A window never begins before the first row, so a clipped row is not part of the result.
        result = select(is_part, merge(result, take(blocks, np.maximum(at, 0))), result)
        at = np.where(is_part, at - size, at)
        blocks = merge(take(blocks, np.maximum(np.arange(count) - size, 0)), blocks)
    return result


def _sizes(longest: int) -> Iterator[int]:
    size = 1
    while size <= longest:
        yield size
        size *= 2


def _merge(first: _Moments, second: _Moments) -> _Moments:
    """Return the moments of the values of two sets; zeros if both are empty."""
    (n, mean, deviations), (m, other_mean, other_deviations) = first, second
    total = n + m
    share = np.divide(m, total, out=np.zeros(len(total)), where=total > 0)
    difference = other_mean - mean
    # The difference does not count if one of the sets is empty.
    spread = np.where((n > 0) & (m > 0), difference**2 * n * share, 0.0)
    merged = np.where(n > 0, mean + difference * share, other_mean)
    return total, np.where(total > 0, merged, 0.0), deviations + other_deviations + spread
