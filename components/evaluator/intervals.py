"""Confidence intervals of metrics: between which values a metric of as many other rows would likely be.

All are of 95 %, and made of counts and sums, so that rows need not be seen twice. They tell how much of a value is the
chance that these rows were drawn and no others; what the training leaves to chance is not in them. Where the rows say
nothing of it (a single one, or a value that does not vary) there is no interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Interval = tuple[float, float]
"""From, to."""

_Z = 1.959963984540054
"""What a normal variable stays below in 97.5 of 100 cases."""
_FEW = 10
"""Of fewer positives, an interval of the area under precision and recall would go from nearly 0 to nearly 1."""
_LEAST = 1e-7
"""The least probability that counts in a crossentropy, as tf_keras has it."""


@dataclass(frozen=True)
class Cells:
    """Rows of a binary task, in classes of nearly equal predictions, from the least to the greatest.

    Attributes:
      rows: how many there are in each, [cells].
      labels: how many of them have the label 1, [cells].
      predictions: the sum of their predictions, [cells].
    """

    rows: Any
    labels: Any
    predictions: Any


def of_rate(rate: float, trials: float) -> Interval | None:
    """Of a share of so many trials: Wilson's score interval.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, 1927.
    """
    if trials <= 0 or not 0 <= rate <= 1:
        return None
    among = 1 + _Z**2 / trials
    middle = (rate + _Z**2 / (2 * trials)) / among
    half = _Z / among * math.sqrt(rate * (1 - rate) / trials + _Z**2 / (4 * trials**2))
    # A share of 0 or 1 lies in its interval whatever the rounding.
    return min(max(middle - half, 0.0), rate), max(min(middle + half, 1.0), rate)


def of_mean(mean: float, squares: float, rows: float) -> Interval | None:
    """Of a mean of what is never negative, such as a loss, over rows: by Student's t.

    Args:
      mean: it.
      squares: the mean of the squares of what it is the mean of.
      rows: how many.
    """
    if rows < 2 or not math.isfinite(mean) or not math.isfinite(squares):
        return None
    variance = max(squares - mean**2, 0.0) * rows / (rows - 1)
    # Next to the square of the mean, a smaller one is but rounding.
    half = _t(rows - 1) * math.sqrt(variance / rows)
    return (max(mean - half, 0.0), mean + half) if variance > 1e-12 * mean**2 else None


def of_auc(auc: float, cells: Cells) -> Interval | None:
    """Of the area under the ROC curve: by DeLong's variance, on the scale of logits, so that it stays between 0 and 1.

    Predictions in a cell count as equal.

    Source: E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, Comparing the areas under two or more correlated
    receiver operating characteristic curves, Biometrics 44, 1988.
    """
    positives, negatives = cells.labels, cells.rows - cells.labels
    several, others = positives.sum(), negatives.sum()
    if several < 2 or others < 2:
        return None
    above = (np.cumsum(negatives) - negatives / 2) / others
    below = (several - np.cumsum(positives) + positives / 2) / several
    area = (positives * above).sum() / several
    variance = (positives * (above - area) ** 2).sum() / (several - 1) / several
    variance += (negatives * (below - area) ** 2).sum() / (others - 1) / others
    return _by_logit(auc, math.sqrt(max(variance, 0.0)))


def of_auc_precision_recall(area: float, positives: float) -> Interval | None:
    """Of the area under the curve of precision and recall: as that of a share among the positives, by logits.

    Source: K. Boyd, K. H. Eng and C. D. Page, Area under the precision-recall curve: point estimates and confidence
    intervals, ECML 2013; the logit interval.
    """
    if positives < _FEW:
        return None
    return _by_logit(area, math.sqrt(max(area * (1 - area), 0.0) / positives))


def of_calibration(ratio: float, cells: Cells) -> Interval | None:
    """Of the mean prediction, divided by the mean label: by the delta method, on the scale of logarithms."""
    rows, labels = cells.rows.sum(), cells.labels.sum()
    if rows < 2 or labels <= 0 or not (math.isfinite(ratio) and ratio > 0):
        return None
    each = cells.predictions / cells.rows
    off = (cells.labels * (each - ratio) ** 2 + (cells.rows - cells.labels) * each**2).sum()
    error = math.sqrt(off * rows / (rows - 1)) / labels
    factor = math.exp(min(_Z * error / ratio, 700.0))
    return (ratio / factor, ratio * factor) if error > 0 else None


def of_crossentropy(mean: float, cells: Cells) -> Interval | None:
    """Of the mean loss of a binary task; that of the rows in a cell is taken at their mean prediction."""
    rows = cells.rows.sum()
    if rows < 2:
        return None
    each = np.clip(cells.predictions / cells.rows, _LEAST, 1 - _LEAST)
    right, wrong = -np.log(each), -np.log1p(-each)
    others = cells.rows - cells.labels
    ours = (cells.labels * right + others * wrong).sum() / rows
    squares = (cells.labels * right**2 + others * wrong**2).sum() / rows
    # The spread is that around the cells' own mean, which may differ a little from the rows'.
    return of_mean(mean, squares - ours**2 + mean**2, rows)


def _by_logit(value: float, error: float) -> Interval | None:
    if not 0 < value < 1 or error <= 0:
        return None
    middle, half = math.log(value / (1 - value)), _Z * error / (value * (1 - value))
    return _logistic(middle - half), _logistic(middle + half)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0


def _t(freedom: float) -> float:
    """What Student's t stays below in 97.5 of 100 cases.

    Source: M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    return _Z + sum(
        term / freedom ** (at + 1)
        for at, term in enumerate(
            (
                (_Z**3 + _Z) / 4,
                (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96,
                (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384,
            )
        )
    )
