"""The mean difference of paired losses, the constant's minus the model's, and its interval, from sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from components.compat.tfma.columnar import Floats, Sums
from components.evaluator import intervals
from components.evaluator.columnar_metric import WeightedSums, mean_and_squares
from components.evaluator.intervals import Interval


class Compared(NamedTuple):
    """A metric of the constant.

    Attributes:
      value: the constant's value; NaN if the predictions or labels are not such that they can be compared.
      gain: by how much the model is better; NaN if it is not a number.
      interval: of the gain; None without one.
    """

    value: float
    gain: float = math.nan
    interval: Interval | None = None


Difference = tuple[float, float, float]
"""Number of rows, sum of the rows' differences and sum of their squares."""


def paired(value: float, difference: Callable[[Sums], Difference], weighted: WeightedSums) -> Compared:
    """Compare by the mean of the rows' differences.

    Args:
      value: The constant's value.
      difference: Sums → what they say about the differences; the constant is known.
      weighted: The sums.
    """
    rows, total, squares = difference(weighted.sums)
    own_rows, own_total, own_squares = difference(weighted.squared)
    gain, mean_square, count = mean_and_squares((rows, (total, squares)), (own_rows, (own_total, own_squares)))
    return Compared(max(value, 0.0), gain, intervals.of_difference(gain, mean_square, count))


def of_line(
    straight: Any, slope: Any, rows: Any, y: Any, y2: Any, loss: Any, loss2: Any, y_loss: Any
) -> tuple[Any, Any]:
    """Return the sums of the differences `straight + slope * label - loss` and of their squares; by bin, if these are
    arrays.

    Args:
      straight: the constant's loss of the label 0.
      slope: by how much it grows with the label.
      rows: number of rows.
      y: sum of the labels.
      y2: sum of their squares.
      loss: sum of the model's losses.
      loss2: sum of their squares.
      y_loss: sum of label * loss.
    """
    squares = rows * straight**2 + slope**2 * y2 + 2 * straight * slope * y
    return rows * straight + slope * y - loss, squares + loss2 - 2 * (straight * loss + slope * y_loss)


def moments(t: Floats, squared_errors: Floats) -> tuple[Floats, ...]:
    """Return the summands that `of_squares` needs; t is the label minus the middle of its bin."""
    q = squared_errors
    return t, t**2, t**3, t**4, q, q**2, t * q, t**2 * q


def of_squares(weighted: WeightedSums, middles: Floats, mean: float, first: int = 0) -> Compared:
    """Compare the mean squared error with that of the labels' mean.

    Args:
      weighted: with the summands of `moments`.
      middles: of the bins; [bins].
      mean: of the labels.
      first: the position of the first of the summands.
    """
    d = middles - mean

    def own(sums: Sums) -> Floats:
        t, t2 = sums.sums.T[first : first + 2]
        return np.asarray(t2 + 2 * d * t + sums.rows * d**2)

    def difference(sums: Sums) -> Difference:
        t, t2, t3, t4, q, q2, tq, t2q = sums.sums.T[first : first + 8]
        fourth = t4 + 4 * d * t3 + 6 * d**2 * t2 + 4 * d**3 * t + sums.rows * d**4
        squares = (fourth - 2 * (t2q + 2 * d * tq + d**2 * q) + q2).sum()
        return float(sums.rows.sum()), float(own(sums).sum()) - float(q.sum()), float(squares)

    sums = weighted.sums
    return paired(float(own(sums).sum()) / float(sums.rows.sum()), difference, weighted)
