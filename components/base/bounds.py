"""Comparisons of measured values with bounds that tolerate rounding errors.

In binary floating point, 0.9 - 0.8 is greater than 0.1. Without a tolerance, a model that is worse by exactly the
allowed 0.1 would fail.
"""

from __future__ import annotations

import sys

FLOAT32_EPSILON = 2.0**-23
_ROUNDINGS = 8
"""Number of roundings from the counts or sums of a metric to the compared value: divisions, then differences."""


def is_at_most(value: float, bound: float, *operands: float, epsilon: float = sys.float_info.epsilon) -> bool:
    """Return whether a value is at most a bound, or exceeds it only by rounding.

    Args:
      value: Measured value. If it is NaN, the result is False.
      bound: Largest value that passes.
      operands: Numbers whose difference is the value. The rounding error of the difference depends on their size.
      epsilon: Distance from 1 to the next larger number in the precision of the operands.
    """
    return value <= bound + _ROUNDINGS * epsilon * max(map(abs, (value, bound, *operands)))


def is_at_least(value: float, bound: float, *operands: float, epsilon: float = sys.float_info.epsilon) -> bool:
    """Return whether a value is at least a bound, or falls below it only by rounding. See `is_at_most`."""
    return is_at_most(-value, -bound, *operands, epsilon=epsilon)


def least_passing(bound: float) -> float:
    """Return the smallest value that `is_at_least` accepts for a bound, to compare many values at once."""
    return bound - _ROUNDINGS * sys.float_info.epsilon * abs(bound)
