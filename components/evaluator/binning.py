"""Rows divided into bins, and the sums over the rows of a bin. Columnar metrics are computed from these sums.

A columnar metric assigns a bin to each row, together with the numbers to sum over the rows of a bin. The metric is a
function of these sums. One accumulator therefore serves all metrics, and the sums of parts of the data add up.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[Any]
"""Labels or predictions in the dtype of the model."""
Binned: TypeAlias = tuple[Ints, Floats]
"""Bin of each row, [rows], or several bins per row, [rows, bins]; and the summands of the row, [rows, sums]."""

LEAST_PROBABILITY = 1e-7
"""Smallest probability of the label in a crossentropy, as in tf_keras."""
DROPPED = np.iinfo(np.int64).min
"""Bin of rows that the metric ignores."""


class Sums(NamedTuple):
    """Sums over some rows, by bin.

    Attributes:
      bins: Bins that contain rows, ascending; [bins].
      rows: Number of rows, or the sum of their weights; [bins].
      sums: Sums of the summands, weighted in the same way; [bins, sums].
    """

    bins: Ints
    rows: Floats
    sums: Floats

    def total(self) -> tuple[float, Floats]:
        """Return the number of rows and the sums over all bins except DROPPED."""
        counted = self.bins != DROPPED
        return float(self.rows[counted].sum()), self.sums[counted].sum(axis=0)


def in_one_bin(*summands: Numbers) -> Binned:
    """Assign all rows to bin 0, except rows with a NaN summand, which are dropped."""
    values = np.stack([np.asarray(column, np.float64) for column in summands], axis=1)
    dropped = np.isnan(values).any(axis=1)
    return np.where(dropped, DROPPED, 0), np.where(dropped[:, np.newaxis], 0.0, values)


def mean(sums: Sums) -> float:
    """Return the mean of the first summand; NaN without rows."""
    rows, totals = sums.total()
    return float(totals[0]) / rows if rows else float("nan")


def probabilities(labels: Numbers) -> Floats:
    """Convert labels to float64.

    Raises:
      ValueError: A label is not in [0, 1].
    """
    values: Floats = labels.astype(np.float64)
    invalid = ~((values >= 0) & (values <= 1))
    if invalid.any():
        raise ValueError(f"label: expected a number from 0 to 1, received {values[invalid][0]}; change data.label")
    return values


def finite(predictions: Numbers) -> Floats:
    """Convert predictions to float64.

    Raises:
      ValueError: A prediction is NaN, which cannot be ordered.
    """
    values: Floats = predictions.astype(np.float64)
    if np.isnan(values).any():
        raise ValueError("prediction: expected a number, received NaN; train with a smaller training.learning_rate")
    return values
