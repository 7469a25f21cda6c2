"""Confidence intervals of metrics at 95 %.

They are computed from counts and sums, so that a single pass over the rows is enough. They cover the variance of the
sampled rows, but not the variance of the training. The interval of a single row or of a constant value is None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import special

from components.evaluator.binning import LEAST_PROBABILITY

Interval = tuple[float, float]
"""Lower and upper bound."""

_P = 0.975
Z = float(special.ndtri(_P))
"""The 97.5 % quantile of the normal distribution."""
_FEWEST_POSITIVES = 10
"""With fewer positives, the interval of the average precision would cover nearly all of [0, 1]."""


@dataclass(frozen=True)
class ScoreBins:
    """Rows in bins of nearly equal predictions, in ascending order of the predictions; shapes [bins].

    Attributes:
      rows: Number of rows, weighted.
      labels: Sum of the labels; in a binary task the number of rows with label 1.
      predictions: Sum of the predictions.
      by_squares: The same bins by the squared weights of the rows; None without weights.
      bins: The bins, if they are bins of `ordered_bins`; otherwise empty.
    """

    rows: npt.NDArray[np.float64]
    labels: npt.NDArray[np.float64]
    predictions: npt.NDArray[np.float64]
    by_squares: ScoreBins | None = None
    bins: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def variance_bins(self) -> ScoreBins:
        """The sums by squared weights, which determine variances."""
        return self.by_squares or self

    @property
    def effective_rows(self) -> float:
        """(Sum of weights)² / sum of squared weights."""
        return count_effective_rows(self.rows, self.variance_bins.rows)


def count_effective_rows(weights: npt.NDArray[np.float64], squared: npt.NDArray[np.float64]) -> float:
    """Return the number of rows with equal weights whose mean would have the same variance; 0 without rows.

    The formula holds for weights that do not depend on the averaged values.

    Source: L. Kish, Survey sampling, 1965.
    """
    total = float(squared.sum())
    return float(weights.sum()) ** 2 / total if total else 0.0


def count_effective_trials(rate: float, squares: float, rows: float) -> float:
    """Return the number of trials for which an unweighted share would have the same variance as a weighted share.

    Args:
      rate: The share.
      squares: Mean square of the rows' 0 or 1 by squared weights, moved to this share; `rate` without weights.
      rows: Effective number of rows, which is returned if all rows are equal.
    """
    variance = squares - rate**2
    return rows * rate * (1 - rate) / variance if 0 < rate < 1 and variance > 0 else rows


def compute_weighted_rate_interval(rate: float, squares: float, rows: float) -> Interval | None:
    """Compute Wilson's interval of a weighted share; arguments as `count_effective_trials`."""
    return compute_rate_interval(rate, count_effective_trials(rate, squares, rows)) if math.isfinite(rate) else None


def compute_rate_interval(rate: float, trials: float) -> Interval | None:
    """Compute Wilson's score interval of a share.

    Args:
      rate: The share, in [0, 1].
      trials: Number of trials.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, 1927.
    """
    if trials <= 0 or not 0 <= rate <= 1:
        return None
    denominator = 1 + Z**2 / trials
    middle = (rate + Z**2 / (2 * trials)) / denominator
    half = Z / denominator * math.sqrt(rate * (1 - rate) / trials + Z**2 / (4 * trials**2))
    # Rounding must not exclude a share of 0 or 1 from its interval.
    return min(max(middle - half, 0.0), rate), max(min(middle + half, 1.0), rate)


def compute_mean_interval(mean: float, squares: float, rows: float) -> Interval | None:
    """Compute the interval of the mean of non-negative values, such as losses, by Student's t distribution.

    Args:
      mean: The mean.
      squares: The mean of the squared values.
      rows: Number of values.
    """
    if rows < 2 or not math.isfinite(mean) or not math.isfinite(squares):
        return None
    variance = max(squares - mean**2, 0.0) * rows / (rows - 1)
    # A variance that is smaller relative to the squared mean is a rounding error.
    half = float(special.stdtrit(rows - 1, _P)) * math.sqrt(variance / rows)
    return (max(mean - half, 0.0), mean + half) if variance > 1e-12 * mean**2 else None


def compute_t_quantile(degrees: float) -> float:
    """Return the 97.5 % quantile of Student's t distribution."""
    return float(special.stdtrit(degrees, _P))


def compute_difference_interval(mean: float, squares: float, rows: float) -> Interval | None:
    """Compute the interval of a mean of paired differences by Student's t distribution.

    If all differences are equal, both bounds are the mean. The arguments are documented in `compute_mean_interval`.
    """
    if rows < 2 or not math.isfinite(mean) or not math.isfinite(squares):
        return None
    half = float(special.stdtrit(rows - 1, _P)) * math.sqrt(max(squares - mean**2, 0.0) / (rows - 1))
    return mean - half, mean + half


def compute_independent_interval(
    before: float, before_interval: Interval, after: float, after_interval: Interval
) -> Interval:
    """Compute the interval of the difference after - before of two values from different rows, from their intervals.

    Source: G. Y. Zou and A. Donner, Construction of confidence limits about effect measures: a general approach,
    Statistics in Medicine 27, 2008 (the method of variance estimates recovery).
    """
    difference = after - before
    below = math.hypot(after - after_interval[0], before_interval[1] - before)
    above = math.hypot(after_interval[1] - after, before - before_interval[0])
    return difference - below, difference + above


def compute_auc_interval(auc: float, bins: ScoreBins) -> Interval | None:
    """Compute the interval of the area under the ROC curve from DeLong's variance, in logits, so that it is in (0, 1).

    The predictions in a bin count as equal.

    Source: E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, Comparing the areas under two or more correlated
    receiver operating characteristic curves, Biometrics 44, 1988.
    """
    positives, negatives = bins.labels, bins.rows - bins.labels
    squared = bins.variance_bins
    squared_positives, squared_negatives = squared.labels, squared.rows - squared.labels
    positive, negative = positives.sum(), negatives.sum()
    rows = count_effective_rows(positives, squared_positives), count_effective_rows(negatives, squared_negatives)
    if min(rows) < 2:
        return None
    above = (np.cumsum(negatives) - negatives / 2) / negative
    below = (positive - np.cumsum(positives) + positives / 2) / positive
    area = (positives * above).sum() / positive
    variance = (squared_positives * (above - area) ** 2).sum() / positive**2 * rows[0] / (rows[0] - 1)
    variance += (squared_negatives * (below - area) ** 2).sum() / negative**2 * rows[1] / (rows[1] - 1)
    return _by_logit(auc, math.sqrt(max(variance, 0.0)))


def compute_group_mean_interval(mean: float, error: float) -> Interval | None:
    """Compute the interval of a weighted mean over groups of rows, in logits, so that it is in (0, 1).

    Different groups are independent, rows of a group are not. The standard error for n groups is the error of a
    ratio estimator, sqrt(n / (n - 1) * sum of (weight * (value - mean))²) / sum of the weights.

    Args:
      mean: The mean, in [0, 1].
      error: Standard error of the mean; 0 if it is unknown.

    Source: W. G. Cochran, Sampling techniques, 3rd edition, 1977, section 6.3; likewise for the ratios of metrics of
    users: A. Deng, U. Knoblich and J. Lu, Applying the delta method in metric analytics, KDD 2018.
    """
    return _by_logit(mean, error)


def compute_average_precision_interval(area: float, bins: ScoreBins) -> Interval | None:
    """Compute the interval of the average precision from its linearized variance, in logits.

    A row with label 1 contributes the precision at its prediction. Every row also changes the precision at all
    predictions that are not above its prediction. The predictions in a bin count as equal.

    Source: W. G. Cochran, Sampling techniques, 3rd edition, 1977, section 6.3 (linearization); logits as in K. Boyd,
    K. H. Eng and C. D. Page, Area under the precision-recall curve: point estimates and confidence intervals, ECML
    2013.
    """
    positive, squared = bins.labels.sum(), bins.variance_bins
    count = count_effective_rows(bins.labels, squared.labels)
    if count < _FEWEST_POSITIVES:
        return None
    rows = np.cumsum(bins.rows[::-1])[::-1]
    precision = np.cumsum(bins.labels[::-1])[::-1] / rows
    # Change of the precision of all rows with label 1 by one more row in this bin, by the label of the row.
    gained, lost = np.cumsum(bins.labels / rows), np.cumsum(bins.labels * precision / rows)
    squared_ones = squared.labels * (precision - area + gained - lost) ** 2
    squared_zeros = (squared.rows - squared.labels) * lost**2
    variance = float((squared_ones + squared_zeros).sum()) / positive**2 * count / (count - 1)
    return _by_logit(area, math.sqrt(variance))


def compute_calibration_interval(ratio: float, bins: ScoreBins) -> Interval | None:
    """Compute the interval of mean prediction / mean label by the delta method, in logarithms."""
    rows, labels, squared = bins.effective_rows, bins.labels.sum(), bins.variance_bins
    if rows < 2 or labels <= 0 or not (math.isfinite(ratio) and ratio > 0):
        return None
    predictions = bins.predictions / bins.rows
    squared_ones = squared.labels * (predictions - ratio) ** 2
    squared_error = (squared_ones + (squared.rows - squared.labels) * predictions**2).sum()
    error = math.sqrt(squared_error * rows / (rows - 1)) / labels
    factor = math.exp(min(Z * error / ratio, 700.0))
    return (ratio / factor, ratio * factor) if error > 0 else None


def compute_crossentropy_interval(mean: float, bins: ScoreBins) -> Interval | None:
    """Compute the interval of the mean loss of a binary task; rows count with the mean prediction of their bin."""
    rows, squared = bins.effective_rows, bins.variance_bins
    if rows < 2:
        return None
    probabilities = np.clip(bins.predictions / bins.rows, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    loss_of_one, loss_of_zero = -np.log(probabilities), -np.log1p(-probabilities)
    # The variance is around the mean of the bins, which may differ a little from the mean of the rows.
    bin_mean = (bins.labels * loss_of_one + (bins.rows - bins.labels) * loss_of_zero).sum() / bins.rows.sum()
    squared_ones = squared.labels * (loss_of_one - bin_mean) ** 2
    squared_zeros = (squared.rows - squared.labels) * (loss_of_zero - bin_mean) ** 2
    variance = (squared_ones + squared_zeros).sum() / squared.rows.sum()
    return compute_mean_interval(mean, variance + mean**2, rows)


def _by_logit(value: float, error: float) -> Interval | None:
    if not 0 < value < 1 or error <= 0:
        return None
    middle, half = special.logit(value), Z * error / (value * (1 - value))
    return float(special.expit(middle - half)), float(special.expit(middle + half))
