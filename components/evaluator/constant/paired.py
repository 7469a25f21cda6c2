"""The mean difference of paired losses, constant minus model, and its interval, computed from sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from components.evaluator import intervals
from components.evaluator.binning import Floats, Sums
from components.evaluator.columnar_metric import WeightedSums, mean_and_squares
from components.evaluator.intervals import Interval


class Compared(NamedTuple):
    """A metric of the constant.

    Attributes:
      value: Value of the constant; NaN if the predictions or labels cannot be compared.
      gain: Gain of the model over the constant; NaN if it is not defined.
      interval: Interval of the gain; None if it cannot be computed.
    """

    value: float
    gain: float = math.nan
    interval: Interval | None = None


Difference = tuple[float, float, float]
"""Number of rows, sum of the rows' differences, and sum of the squared differences."""


def compare_pairs(value: float, difference: Callable[[Sums], Difference], weighted: WeightedSums) -> Compared:
    """Compare the constant with the model by the mean of the rows' differences.

    Args:
      value: Value of the constant.
      difference: Sums → the rows' differences.
      weighted: The sums.
    """
    rows, *sums = difference(weighted.sums)
    squared_rows, *squared_sums = difference(weighted.squared)
    gain, mean_square, count = mean_and_squares((rows, sums), (squared_rows, squared_sums))
    return Compared(max(value, 0.0), gain, intervals.compute_difference_interval(gain, mean_square, count))


def sum_line_differences(
    straight: Any, slope: Any, rows: Any, y: Any, y2: Any, loss: Any, loss2: Any, y_loss: Any
) -> tuple[Any, Any]:
    """Sum the differences `straight + slope * label - loss` and their squares; if the arguments are arrays, by bin.

    Args:
      straight: Loss of the constant for label 0.
      slope: Increase of the constant's loss per unit of the label.
      rows: Number of rows.
      y: Sum of the labels.
      y2: Sum of the squared labels.
      loss: Sum of the model's losses.
      loss2: Sum of the squared losses.
      y_loss: Sum of label * loss.
    """
    squares = rows * straight**2 + slope**2 * y2 + 2 * straight * slope * y
    return rows * straight + slope * y - loss, squares + loss2 - 2 * (straight * loss + slope * y_loss)


def moments(t: Floats, squared_errors: Floats) -> tuple[Floats, ...]:
    """Return the summands that `compare_squares` needs.

    Args:
      t: Label minus the middle of its bin; [rows].
      squared_errors: Squared errors; [rows].
    """
    q = squared_errors
    return t, t**2, t**3, t**4, q, q**2, t * q, t**2 * q


def compare_squares(weighted: WeightedSums, middles: Floats, mean: float, first: int = 0) -> Compared:
    """Compare the mean squared error with the error of predicting the labels' mean.

    Args:
      weighted: Sums of the summands of `moments`.
      middles: Middles of the bins; [bins].
      mean: Mean of the labels.
      first: Position of the first summand of `moments`.
    """
    d = middles - mean

    def constant_errors(sums: Sums) -> Floats:
        t, t2 = sums.sums.T[first : first + 2]
        return np.asarray(t2 + 2 * d * t + sums.rows * d**2)

    def difference(sums: Sums) -> Difference:
        t, t2, t3, t4, q, q2, tq, t2q = sums.sums.T[first : first + 8]
        fourth = t4 + 4 * d * t3 + 6 * d**2 * t2 + 4 * d**3 * t + sums.rows * d**4
        squares = (fourth - 2 * (t2q + 2 * d * tq + d**2 * q) + q2).sum()
        return float(sums.rows.sum()), float(constant_errors(sums).sum()) - float(q.sum()), float(squares)

    sums = weighted.sums
    return compare_pairs(float(constant_errors(sums).sum()) / float(sums.rows.sum()), difference, weighted)
