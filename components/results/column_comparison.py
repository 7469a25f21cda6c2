"""The comparison of a column in two samples, as dataclasses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bin:
    """A bin of a histogram, with the shares of its values in two samples.

    Attributes:
      label: The value; for a range of numbers, its upper end, or `above` in the last bin.
      reference: Share of the values in the reference, from 0 to 1.
      sample: Share of the values in the sample, from 0 to 1.
    """

    label: str
    reference: float
    sample: float


@dataclass(frozen=True)
class ColumnComparison:
    """The comparison of a column in two samples; see `components.data.column_comparison` for the figures.

    Attributes:
      name: Name of the column.
      distance: Distance between the distributions, from 0 (equal) to 1. None if one sample does not contain any value.
      psi: Population stability index, from 0 (equal) upwards. None if one sample does not contain any value.
      p_value: P-value of the test, corrected for the number of columns by Holm's method.
      missing: Share of rows without a value, first in the reference, then in the sample.
      new: Share of the sample's values that do not occur in the reference. None for numbers.
      bins: The two distributions as a histogram.
    """

    name: str
    distance: float | None
    psi: float | None
    p_value: float
    missing: tuple[float, float]
    new: float | None
    bins: tuple[Bin, ...]
