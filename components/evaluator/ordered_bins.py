"""Bins of numbers in ascending order, with a separate bin per distinct number unless there are too many numbers.

The key of a number is an integer that preserves the order: the bits of the number with 44 bits of the mantissa, so that
every float32 has a unique key. A bin is a key without its last bits; the number of removed bits is the level of the
bin. A slice begins at level 0. If it has too many bins, its level rises until they fit, so that neighbours share a bin,
and bins are narrow where the numbers are dense or near 0. The level does not depend on the order of
merging, because a part of the numbers never needs a higher level than all numbers.
"""

from __future__ import annotations

import numpy as np

from components.evaluator.binning import Floats, Ints

_DROPPED_BITS = 8
_OFFSET = 1 << 55
"""Offset that makes all keys non-negative."""
_LEVEL_BITS = 6
_LEVELS = (1 << _LEVEL_BITS) - 1
MOST, FEWEST, TOTAL = 1 << 17, 1 << 13, 1 << 20
"""Maximum number of bins per slice, number that every slice may have, and maximum number of all slices together."""


def bins_of(numbers: Floats) -> Ints:
    """Return the bins of numbers at level 0.

    Args:
      numbers: float64 [rows], without NaN.
    """
    keys = np.abs(numbers).view(np.int64) >> _DROPPED_BITS
    return (np.where(numbers < 0, -keys, keys) + _OFFSET) << _LEVEL_BITS


def bins_of_keys(keys: Ints) -> Ints:
    """Return the bins at level 0 of keys in another form, which are less than 2**57; [rows]."""
    return keys << _LEVEL_BITS


def keys_of(bins: Ints) -> Ints:
    """Return the smallest keys of bins; [bins]."""
    return (bins >> _LEVEL_BITS) << levels_of(bins)


def levels_of(bins: Ints) -> Ints:
    """Return the levels of bins. All numbers of a bin at level 0 are equal as float32."""
    return bins & _LEVELS


def edges_of(bins: Ints) -> tuple[Floats, Floats]:
    """Return the inclusive lower and the exclusive upper bounds of bins; [bins]."""
    levels, keys = levels_of(bins), bins >> _LEVEL_BITS
    low, high = (((keys + step) << levels) - _OFFSET for step in (0, 1))
    return _numbers(low), _numbers(high)


def align(slices: Ints, bins: Ints) -> Ints:
    """Raise all bins of a slice to the greatest level in the slice.

    Args:
      slices: Slice of the bin; [bins].
      bins: Bins of several parts, whose levels may differ; [bins].
    """
    levels = levels_of(bins)
    if not levels.any():
        return bins
    greatest = np.zeros(int(slices.max()) + 1, np.int64)
    np.maximum.at(greatest, slices, levels)
    return _raise_levels(bins, greatest[slices])


def fit(slices: Ints, bins: Ints) -> Ints | None:
    """Raise the level of slices that have too many bins. Return None if all slices fit.

    Args:
      slices: Slice of the bin, ascending; [bins].
      bins: Distinct bins, ascending and at one level within a slice; [bins].
    """
    starts = np.flatnonzero(np.diff(slices, prepend=-1))
    sizes = np.diff(starts, append=len(slices))
    most = min(MOST, max(FEWEST, TOTAL // max(len(starts), 1)))
    if sizes.max(initial=0) <= most:
        return None
    raised = bins.copy()
    for start, size in zip(starts[sizes > most].tolist(), sizes[sizes > most].tolist(), strict=True):
        part = bins[start : start + size]
        raised[start : start + size] = _raise_levels(part, levels_of(part) + _steps(part >> _LEVEL_BITS, most))
    return raised


def _steps(keys: Ints, most: int) -> int:
    """Return the number of further bits to remove, so that at most `most` of these ascending keys differ."""
    different = keys[1:] ^ keys[:-1]
    # Find the highest bit that differs between neighbours. Clear the next bit, because a float64 would round it up.
    _, highest = np.frexp((different & ~(different >> 1)).astype(np.float64))
    # At level n, the neighbours that differ are those with a different bit above the last n bits.
    pairs = np.cumsum(np.bincount(highest, minlength=_LEVELS + 1)[::-1])[::-1]
    return int(np.argmax(np.append(pairs, 0)[1:] < most))


def _raise_levels(bins: Ints, levels: Ints) -> Ints:
    return ((bins >> _LEVEL_BITS) >> (levels - levels_of(bins))) << _LEVEL_BITS | levels


def _numbers(keys: Ints) -> Floats:
    sizes = (np.abs(keys) << _DROPPED_BITS).view(np.float64)
    return np.where(keys < 0, -sizes, sizes)
