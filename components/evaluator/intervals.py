"""Confidence intervals of metrics at 95 %.

They are computed from counts and sums, so that one pass over the rows is enough. They cover the variance of the sampled
rows, not that of the training. A single row, or a constant value, has no interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import special

from components.compat.tfma.columnar import LEAST_PROBABILITY

Interval = tuple[float, float]
"""Lower and upper bound."""

_P = 0.975
Z = float(special.ndtri(_P))
"""The 97.5 % quantile of the normal distribution."""
_FEWEST_POSITIVES = 10
"""With fewer positives, an interval of the area under precision and recall covers nearly all of [0, 1]."""


@dataclass(frozen=True)
class ScoreBins:
    """Rows in bins of nearly equal predictions, in ascending order of the predictions; shapes [bins].

    Attributes:
      rows: number of rows, weighted.
      labels: sum of the labels; in a binary task the number of rows with label 1.
      predictions: sum of the predictions.
      by_squares: the same bins, with the squares of the rows' weights in place of the weights; None without weights.
      bins: the bins of `ordered_bins`; empty if they are others.
    """

    rows: npt.NDArray[np.float64]
    labels: npt.NDArray[np.float64]
    predictions: npt.NDArray[np.float64]
    by_squares: ScoreBins | None = None
    bins: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def squared(self) -> ScoreBins:
        """The sums by squared weights, which variances are computed from."""
        return self.by_squares or self

    @property
    def effective_rows(self) -> float:
        """(Sum of weights)² / sum of squared weights."""
        return effective(self.rows, self.squared.rows)


def effective(weights: npt.NDArray[np.float64], squared: npt.NDArray[np.float64]) -> float:
    """Return the number of rows of equal weight whose mean has the same variance; 0 without rows.

    It holds for weights that do not depend on the averaged values.

    Source: L. Kish, Survey sampling, 1965.
    """
    total = float(squared.sum())
    return float(weights.sum()) ** 2 / total if total else 0.0


def effective_trials(rate: float, squares: float, rows: float) -> float:
    """Return the number of trials with which a share has the variance of a weighted share.

    Args:
      rate: The share.
      squares: Mean square of 0 or 1 of each row by squared weights, moved to this share: rate without weights.
      rows: Effective number of rows, which counts where all rows are alike.
    """
    variance = squares - rate**2
    return rows * rate * (1 - rate) / variance if 0 < rate < 1 and variance > 0 else rows


def of_weighted_rate(rate: float, squares: float, rows: float) -> Interval | None:
    """Compute Wilson's interval of a share with weights; arguments as `effective_trials`."""
    return of_rate(rate, effective_trials(rate, squares, rows)) if math.isfinite(rate) else None


def of_rate(rate: float, trials: float) -> Interval | None:
    """Compute the interval of a share: Wilson's score interval.

    Args:
      rate: the share, in [0, 1].
      trials: number of trials.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, 1927.
    """
    if trials <= 0 or not 0 <= rate <= 1:
        return None
    denominator = 1 + Z**2 / trials
    middle = (rate + Z**2 / (2 * trials)) / denominator
    half = Z / denominator * math.sqrt(rate * (1 - rate) / trials + Z**2 / (4 * trials**2))
    # Rounding must not exclude a share of 0 or 1 from its interval.
    return min(max(middle - half, 0.0), rate), max(min(middle + half, 1.0), rate)


def of_mean(mean: float, squares: float, rows: float) -> Interval | None:
    """Compute the interval of the mean of non-negative values, such as losses: by Student's t distribution.

    Args:
      mean: the mean.
      squares: the mean of the squared values.
      rows: number of values.
    """
    if rows < 2 or not math.isfinite(mean) or not math.isfinite(squares):
        return None
    variance = max(squares - mean**2, 0.0) * rows / (rows - 1)
    # A variance that is smaller relative to the squared mean is a rounding error.
    half = float(special.stdtrit(rows - 1, _P)) * math.sqrt(variance / rows)
    return (max(mean - half, 0.0), mean + half) if variance > 1e-12 * mean**2 else None


def of_difference(mean: float, squares: float, rows: float) -> Interval | None:
    """Compute the interval of a mean of paired differences: by Student's t distribution; arguments as `of_mean`.

    If all differences are equal, both bounds are the mean.
    """
    if rows < 2 or not math.isfinite(mean) or not math.isfinite(squares):
        return None
    half = float(special.stdtrit(rows - 1, _P)) * math.sqrt(max(squares - mean**2, 0.0) / (rows - 1))
    return mean - half, mean + half


def of_independent(one: float, of_one: Interval, other: float, of_other: Interval) -> Interval:
    """Compute the interval of a difference, other - one, of two values of different rows, from the values' intervals.

    Source: G. Y. Zou and A. Donner, Construction of confidence limits about effect measures: a general approach,
    Statistics in Medicine 27, 2008 (the method of variance estimates recovery).
    """
    difference = other - one
    below = math.hypot(other - of_other[0], of_one[1] - one)
    above = math.hypot(of_other[1] - other, one - of_one[0])
    return difference - below, difference + above


def of_auc(auc: float, bins: ScoreBins) -> Interval | None:
    """Compute the interval of the area under the ROC curve: by DeLong's variance, in logits, so that it is in (0, 1).

    The predictions of a bin count as equal.

    Source: E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, Comparing the areas under two or more correlated
    receiver operating characteristic curves, Biometrics 44, 1988.
    """
    positives, negatives = bins.labels, bins.rows - bins.labels
    squared_positives, squared_negatives = bins.squared.labels, bins.squared.rows - bins.squared.labels
    positive, negative = positives.sum(), negatives.sum()
    rows = effective(positives, squared_positives), effective(negatives, squared_negatives)
    if min(rows) < 2:
        return None
    above = (np.cumsum(negatives) - negatives / 2) / negative
    below = (positive - np.cumsum(positives) + positives / 2) / positive
    area = (positives * above).sum() / positive
    variance = (squared_positives * (above - area) ** 2).sum() / positive**2 * rows[0] / (rows[0] - 1)
    variance += (squared_negatives * (below - area) ** 2).sum() / negative**2 * rows[1] / (rows[1] - 1)
    return _by_logit(auc, math.sqrt(max(variance, 0.0)))


def of_groups(mean: float, error: float) -> Interval | None:
    """Compute the interval of a weighted mean, in [0, 1], over groups of rows: in logits, so that it is in (0, 1).

    Groups are independent of each other, the rows of a group are not. The standard error is that of a ratio estimator,
    sqrt(n / (n - 1) * sum of (weight * (value - mean))²) / sum of the weights, of n groups.

    Args:
      mean: the mean.
      error: its standard error; 0: not known.

    Source: W. G. Cochran, Sampling techniques, 3rd edition, 1977, section 6.3; likewise for the ratios of metrics of
    users: A. Deng, U. Knoblich and J. Lu, Applying the delta method in metric analytics, KDD 2018.
    """
    return _by_logit(mean, error)


def of_auc_precision_recall(area: float, bins: ScoreBins) -> Interval | None:
    """Compute the interval of the average precision: by its linearized variance, in logits.

    A row changes the average precision by its own precision, if its label is 1, and by the precision of all rows with
    label 1 that it is not below. The predictions of a bin count as equal.

    Source: W. G. Cochran, Sampling techniques, 3rd edition, 1977, section 6.3 (linearization); logits as in K. Boyd,
    K. H. Eng and C. D. Page, Area under the precision-recall curve: point estimates and confidence intervals, ECML
    2013.
    """
    positive, squared = bins.labels.sum(), bins.squared
    count = effective(bins.labels, squared.labels)
    if count < _FEWEST_POSITIVES:
        return None
    rows = np.cumsum(bins.rows[::-1])[::-1]
    precision = np.cumsum(bins.labels[::-1])[::-1] / rows
    # What one more row with a prediction of this bin adds to the precision of all rows with label 1, by its label.
    gained, lost = np.cumsum(bins.labels / rows), np.cumsum(bins.labels * precision / rows)
    of_ones = squared.labels * (precision - area + gained - lost) ** 2
    of_zeros = (squared.rows - squared.labels) * lost**2
    variance = float((of_ones + of_zeros).sum()) / positive**2 * count / (count - 1)
    return _by_logit(area, math.sqrt(variance))


def of_calibration(ratio: float, bins: ScoreBins) -> Interval | None:
    """Compute the interval of mean prediction / mean label: by the delta method, in logarithms."""
    rows, labels, squared = bins.effective_rows, bins.labels.sum(), bins.squared
    if rows < 2 or labels <= 0 or not (math.isfinite(ratio) and ratio > 0):
        return None
    each = bins.predictions / bins.rows
    squared_error = (squared.labels * (each - ratio) ** 2 + (squared.rows - squared.labels) * each**2).sum()
    error = math.sqrt(squared_error * rows / (rows - 1)) / labels
    factor = math.exp(min(Z * error / ratio, 700.0))
    return (ratio / factor, ratio * factor) if error > 0 else None


def of_crossentropy(mean: float, bins: ScoreBins) -> Interval | None:
    """Compute the interval of the mean loss of a binary task; the rows of a bin count with their mean prediction."""
    rows, squared = bins.effective_rows, bins.squared
    if rows < 2:
        return None
    each = np.clip(bins.predictions / bins.rows, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    right, wrong = -np.log(each), -np.log1p(-each)
    others = bins.rows - bins.labels
    # The variance is around the bins' own mean, which may differ a little from the mean of the rows.
    own_mean = (bins.labels * right + others * wrong).sum() / bins.rows.sum()
    of_right, of_wrong = squared.labels * (right - own_mean) ** 2, squared.rows - squared.labels
    variance = (of_right + of_wrong * (wrong - own_mean) ** 2).sum() / squared.rows.sum()
    return of_mean(mean, variance + mean**2, rows)


def _by_logit(value: float, error: float) -> Interval | None:
    if not 0 < value < 1 or error <= 0:
        return None
    middle, half = special.logit(value), Z * error / (value * (1 - value))
    return float(special.expit(middle - half)), float(special.expit(middle + half))
