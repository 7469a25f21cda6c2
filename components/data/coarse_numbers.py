"""Find columns of floats whose values differ by little more than the precision of float32, in statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import statistics_pb2

_STEPS = 100
"""A column is coarse if its standard deviation is below this number of steps. Rounding then adds 0.3 % to it."""


@dataclass(frozen=True)
class CoarseNumbers:
    """A column of floats that lost much of its information when it was stored.

    Attributes:
      column: Name of the raw column.
      greatest: Maximum absolute value.
      step: Distance from that value to the next float32 number.
      deviation: Standard deviation of the stored values.
    """

    column: str
    greatest: float
    step: float
    deviation: float

    def __str__(self) -> str:
        return (
            f"{self.column}: values near {self.greatest:.6g} are stored in steps of {self.step:g}, and differ by "
            f"{self.deviation:.3g} (standard deviation); set data.types to int for whole numbers, or subtract a number"
        )


def find_coarse_numbers(dataset: statistics_pb2.DatasetFeatureStatistics) -> Iterator[CoarseNumbers]:
    """Yield the coarse columns of a split.

    Args:
      dataset: The statistics of the split, without slices.
    """
    for feature in dataset.features:
        numbers = feature.num_stats
        greatest = max(abs(numbers.min), abs(numbers.max))
        if feature.Type.Name(feature.type) != "FLOAT" or numbers.min == numbers.max:
            continue
        # float32 has 24 binary digits.
        step = 2.0 ** (math.frexp(greatest)[1] - 24)
        if numbers.std_dev < _STEPS * step:
            yield CoarseNumbers(feature.name or feature.path.step[0], greatest, step, float(numbers.std_dev))
