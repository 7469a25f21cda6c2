"""Bins of numbers by their order, which hold each distinct number as long as there are not too many of them.

The key of a number is an integer in the order of the numbers: its bits, of which 44 of the mantissa are kept, so that
every float32 has a key of its own. A bin is a key without its last bits; their number is the level of the bin. A slice
begins at level 0. When it has too many bins, its level rises until they fit, so neighbours share a bin, and bins are
narrow where the numbers are dense or near 0. The level depends on the numbers only, not on the order in which parts are
merged, because no part of the numbers needs a higher level than all of them.
"""

from __future__ import annotations

import numpy as np

from components.compat.tfma.columnar import Floats, Ints

_DROPPED_BITS = 8
_OFFSET = 1 << 55
"""Added to a key, so that it is not negative."""
_LEVEL_BITS = 6
_LEVELS = (1 << _LEVEL_BITS) - 1
MOST, FEWEST, TOTAL = 1 << 17, 1 << 13, 1 << 20
"""Greatest number of bins of a slice, the number that every slice may have, and that of all slices together."""


def bins_of(numbers: Floats) -> Ints:
    """Return the bins of numbers at level 0; float64 [rows], no NaN."""
    keys = np.abs(numbers).view(np.int64) >> _DROPPED_BITS
    return (np.where(numbers < 0, -keys, keys) + _OFFSET) << _LEVEL_BITS


def levels_of(bins: Ints) -> Ints:
    """Return the levels of bins; 0: all numbers of a bin are equal, as float32."""
    return bins & _LEVELS


def edges_of(bins: Ints) -> tuple[Floats, Floats]:
    """Return the lower and the upper bounds of bins, of which the upper one is exclusive; [bins]."""
    levels, keys = levels_of(bins), bins >> _LEVEL_BITS
    low, high = (((keys + step) << levels) - _OFFSET for step in (0, 1))
    return _numbers(low), _numbers(high)


def align(slices: Ints, bins: Ints) -> Ints:
    """Return bins in which all of a slice have the greatest level of the slice.

    Args:
      slices: Slice of each bin, [bins].
      bins: Bins of several parts, whose levels may differ, [bins].
    """
    levels = levels_of(bins)
    if not levels.any():
        return bins
    greatest = np.zeros(int(slices.max()) + 1, np.int64)
    np.maximum.at(greatest, slices, levels)
    return _raised(bins, greatest[slices])


def fit(slices: Ints, bins: Ints) -> Ints | None:
    """Return bins of higher levels for slices that have too many; None if there is no such slice.

    Args:
      slices: Slice of each bin, ascending, [bins].
      bins: Distinct bins of a slice, ascending, of one level, [bins].
    """
    starts = np.flatnonzero(np.diff(slices, prepend=-1))
    sizes = np.diff(starts, append=len(slices))
    most = min(MOST, max(FEWEST, TOTAL // max(len(starts), 1)))
    if sizes.max(initial=0) <= most:
        return None
    raised = bins.copy()
    for start, size in zip(starts[sizes > most].tolist(), sizes[sizes > most].tolist(), strict=True):
        part = bins[start : start + size]
        raised[start : start + size] = _raised(part, levels_of(part) + _steps(part >> _LEVEL_BITS, most))
    return raised


def _steps(keys: Ints, most: int) -> int:
    """Return how many more bits to leave out, so that at most `most` of these ascending keys differ."""
    different = keys[1:] ^ keys[:-1]
    # The highest bit in which neighbours differ. The bit after it is cleared, because a float64 would round it up.
    _, highest = np.frexp((different & ~(different >> 1)).astype(np.float64))
    # At level n as many neighbours differ as have a different bit above the last n.
    pairs = np.cumsum(np.bincount(highest, minlength=_LEVELS + 1)[::-1])[::-1]
    return int(np.argmax(np.append(pairs, 0)[1:] < most))


def _raised(bins: Ints, levels: Ints) -> Ints:
    return ((bins >> _LEVEL_BITS) >> (levels - levels_of(bins))) << _LEVEL_BITS | levels


def _numbers(keys: Ints) -> Floats:
    sizes = (np.abs(keys) << _DROPPED_BITS).view(np.float64)
    return np.where(keys < 0, -sizes, sizes)
