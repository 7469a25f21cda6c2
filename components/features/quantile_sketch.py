"""A sketch of the quantiles of a column: a sample of its values in bounded memory.

Not tfx_bsl's sketch: it keeps 32 bytes for each value of a sample of about the same size, and a copy of all of it is in
memory for each worker that Beam sends it to.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_VALUES = 1 << 14
"""Values of a level."""

Values: TypeAlias = "npt.NDArray[np.float32] | npt.NDArray[np.float64]"


class QuantileSketch:
    """Estimates quantiles of the values that were added; exact up to 32,767 values.

    Each level holds 16,384 sorted values of the same weight. Two levels of weight w become one of weight 2w: of their
    sorted values, every second one. Each of these steps changes the rank of a value by at most w, so n values in h
    levels have a greatest error of h * n / 32,768: 0.06 % of the rows for 2**32 rows. The memory grows with the
    logarithm of the number of values: 64 or 128 KiB for each doubling.

    Source: J. I. Munro and M. S. Paterson, Selection and sorting with limited storage, 1980; G. S. Manku,
    S. Rajagopalan and B. G. Lindsay, Approximate medians and other quantiles in one pass and with limited memory, 1998.

    Example:
      sketch = QuantileSketch()
      sketch.add(np.float64([1, 5, 2, 4, 3]))
      sketch.quantiles(2)  # [1.0, 3.0, 5.0]
    """

    def __init__(self) -> None:
        self._pending: list[Values] = []
        """Values of weight 1 that do not fill a level yet."""
        self._levels: list[Values | None] = []
        """Sorted values of weight 1, 2, 4, …"""
        self._skips: list[bool] = []
        """Whether the next merge of each level drops its first value: the errors of two merges cancel mostly."""
        self._least, self._greatest = math.inf, -math.inf

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """Add values, shape [n]; NaN does not count."""
        present: Values = values[~np.isnan(values)]
        if not len(present):
            return
        self._least = min(self._least, float(present.min()))
        self._greatest = max(self._greatest, float(present.max()))
        narrow = present.astype(np.float32)
        self._add_pending([narrow if np.array_equal(narrow, present) else present])

    def merge(self, other: QuantileSketch) -> None:
        """Add the values of another sketch, which is not used afterwards."""
        self._least, self._greatest = min(self._least, other._least), max(self._greatest, other._greatest)
        for level, values in enumerate(other._levels):
            if values is not None:
                self._insert(level, values)
        self._add_pending(other._pending)

    def quantiles(self, count: int) -> npt.NDArray[np.float64]:
        """Return minimum, inner quantiles and maximum: count + 1 numbers; 0 without values."""
        samples = [(values, 1.0) for values in self._pending]
        samples += [(values, 2.0**level) for level, values in enumerate(self._levels) if values is not None]
        if not samples:
            return np.zeros(count + 1)
        values: npt.NDArray[Any] = np.concatenate([values for values, _ in samples]).astype(np.float64)
        weights = np.concatenate([np.full(len(values), weight) for values, weight in samples])
        order = np.argsort(values, kind="stable")
        ends = np.cumsum(weights[order])
        # The value whose share of the ranks contains the quantile's rank.
        places = np.searchsorted(ends, np.arange(count + 1) * ends[-1] / count, side="right")
        found: npt.NDArray[np.float64] = values[order][np.minimum(places, len(values) - 1)]
        found[0], found[-1] = self._least, self._greatest
        return found

    def _add_pending(self, arrays: list[Values]) -> None:
        self._pending += arrays
        if sum(map(len, self._pending)) < _VALUES:
            return
        values: Values = np.concatenate(self._pending)
        full = len(values) - len(values) % _VALUES
        # A copy, which does not keep the other values in memory.
        self._pending = [values[full:].copy()]
        for start in range(0, full, _VALUES):
            self._insert(0, np.sort(values[start : start + _VALUES]))

    def _insert(self, level: int, values: Values) -> None:
        """Add sorted values of a level; if it is not empty, they move to the next one."""
        while True:
            missing = level + 1 - len(self._levels)
            self._levels += [None] * missing
            self._skips += [False] * missing
            present = self._levels[level]
            if present is None:
                self._levels[level] = values
                return
            self._levels[level] = None
            both = np.concatenate([present, values])
            # A merge of two sorted parts.
            both.sort(kind="stable")
            values = both[int(self._skips[level]) :: 2].copy()
            self._skips[level] = not self._skips[level]
            level += 1
