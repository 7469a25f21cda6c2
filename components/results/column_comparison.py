"""The comparison of a column in two samples, as dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DISTANCE, MISSING, NEW_VALUES = "distance", "missing", "new values"
OUT_OF_RANGE, TAILS = "out of range", "tails"
"""Names of the figures that have a test and a bound."""


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
      p_value: Smallest of the `p_values`.
      missing: Share of rows without a value, first in the reference, then in the sample.
      new: Share of the sample's values that do not occur in the reference. None for numbers.
      bins: The two distributions as a histogram.
      expected_new: Value of `new` to expect in a sample with the distribution of the reference: close to 1 for IDs that
        are unique to each row, close to 0 for categories. None for numbers.
      out_of_range: Share of the sample's values below the least or above the greatest value of the reference. None for
        texts.
      tails: Share of the values below the 1 % quantile or above the 99 % quantile of the reference, first in the
        reference, then in the sample. None for texts and for numbers with few distinct values.
      p_values: Name of a figure → p-value of its test, corrected by Holm's method for the number of tests of all
        columns.
    """

    name: str
    distance: float | None
    psi: float | None
    p_value: float
    missing: tuple[float, float]
    new: float | None
    bins: tuple[Bin, ...]
    expected_new: float | None = None
    out_of_range: float | None = None
    tails: tuple[float, float] | None = None
    p_values: Mapping[str, float] = field(default_factory=dict)
