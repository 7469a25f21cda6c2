"""The comparison of regressions with the mean, the median and the quantiles of the labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from components.evaluator.binning import DROPPED, Binned, Floats, Ints, Numbers, Sums
from components.evaluator.columnar_metric import WeightedSums
from components.evaluator.constant.paired import (
    Compared,
    Difference,
    compare_pairs,
    compare_squares,
    moments,
    sum_line_differences,
)
from components.evaluator.error_metrics import deviances
from components.evaluator.plot_metrics import assign_number_bins, number_bin_edges
from components.evaluator.quantile_metrics import losses

ERROR_OF_MEAN = "mean_absolute_error_of_mean"
"""Mean absolute error of predicting the labels' mean. A model of the mean may have a larger error than the median."""
_COARSE = 0.01
"""Maximum share of the median's bin in the mean absolute error of the median."""


def regression_bins(labels: Numbers, predictions: Numbers) -> Binned:
    """Return bins of labels, and summands of the label minus the middle of its bin, which preserve the digits."""
    y, bins, t = _label_bins(labels)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(y - predictions)
        summands = np.stack([*moments(t, error**2), error, t * error], axis=1)
    return bins, summands


def _label_bins(labels: Numbers) -> tuple[Floats, Ints, Floats]:
    """Return the labels, their bins, and the labels minus the middles of their bins."""
    y = labels.astype(np.float64)
    bins = np.where(np.isfinite(y), assign_number_bins(np.where(np.isfinite(y), y, 0.0)), DROPPED)
    with np.errstate(over="ignore", invalid="ignore"):
        return y, bins, np.where(bins == DROPPED, 0.0, y - _middles(bins))


def _drop_ignored(weighted: WeightedSums) -> WeightedSums:
    return weighted.select(weighted.sums.bins != DROPPED)


def compare_regression(weighted: WeightedSums, *_: WeightedSums) -> dict[str, Compared]:
    """Compare the squared errors with predicting the labels' mean, and the absolute errors with their median."""
    weighted = _drop_ignored(weighted)
    sums = weighted.sums
    if not len(sums.bins):
        return {}
    rows, middles, shifted = float(sums.rows.sum()), _middles(sums.bins), sums.sums[:, 0]
    mean = float((sums.rows * middles + shifted).sum() / rows)
    squared = compare_squares(weighted, middles, mean)
    comparisons = {"mean_squared_error": squared}
    if squared.value >= 0:
        comparisons["r_squared"] = Compared(0.0)
        comparisons["root_mean_squared_error"] = Compared(math.sqrt(squared.value))
    return comparisons | _compare_median(weighted, middles) | _compare_errors_of_mean(weighted, middles, mean)


def _compare_errors_of_mean(weighted: WeightedSums, middles: Floats, mean: float) -> dict[str, Compared]:
    """Compare the absolute errors with predicting the labels' mean.

    All labels of a bin count as being on the same side of the mean. The result is empty if those in the mean's bin
    differ too much for this approximation.
    """
    sums = weighted.sums
    t, squares, *_ = sums.sums.T
    # All rows of a bin may have weight 0.
    rows = np.where(sums.rows > 0, sums.rows, 1.0)
    centers = t / rows
    side = np.sign(middles + centers - mean)
    straight = side * (middles - mean)
    # In a bin, the error of the constant is straight + side * t.
    total = float((straight * sums.rows + side * t).sum())
    deviations = np.sqrt(np.maximum(squares / rows - centers**2, 0.0)) * sums.rows
    if deviations[sums.bins == assign_number_bins(np.array([mean]))].sum() > _COARSE * total:
        return {}

    def difference(sums: Sums) -> Difference:
        t, squares, error_squares, errors, t_errors = sums.sums.T[[0, 1, 4, 8, 9]]
        differences, squares = sum_line_differences(
            straight, side, sums.rows, t, squares, errors, error_squares, t_errors
        )
        return float(sums.rows.sum()), float(differences.sum()), float(squares.sum())

    return {ERROR_OF_MEAN: compare_pairs(total / float(sums.rows.sum()), difference, weighted)}


def _compare_median(weighted: WeightedSums, middles: Floats) -> dict[str, Compared]:
    """Compare the mean absolute error, which is twice the loss of the median."""

    def halves(sums: Sums) -> Sums:
        t, squares, error_squares, errors, t_errors = sums.sums.T[[0, 1, 4, 8, 9]]
        return Sums(sums.bins, sums.rows, np.stack([t, squares, errors / 2, error_squares / 4, t_errors / 2], axis=1))

    median, _ = _compare_quantile_loss(WeightedSums(*map(halves, weighted)), middles, (0.5,))
    if median is None:
        return {}
    ends = None if median.interval is None else (2 * median.interval[0], 2 * median.interval[1])
    return {"mean_absolute_error": Compared(2 * median.value, 2 * median.gain, ends)}


def _compare_quantile_loss(
    weighted: WeightedSums, middles: Floats, quantiles: Sequence[float]
) -> tuple[Compared | None, list[float]]:
    """Compare the mean loss of quantiles with predicting the labels' quantiles, the means of their bins.

    The loss within a quantile's bin counts as 0. Bins have a relative width of 0.001. The first result is None if the
    labels in such a bin differ too much for this approximation, as large numbers close to each other do.

    Args:
      weighted: Sums of the summands of `quantile_bins`.
      middles: Middles of the bins; [bins].
      quantiles: The quantiles.

    Returns:
      The comparison, and the labels' quantiles.
    """
    sums = weighted.sums
    rows = float(sums.rows.sum())
    t, squares, *_ = sums.sums.T
    slope, straight = np.zeros(len(middles)), np.zeros(len(middles))
    values, spread, size = [], 0.0, 0.0
    for quantile in quantiles:
        at = int(np.searchsorted(np.cumsum(sums.rows), quantile * rows))
        inside = sums.rows[at]
        value = middles[at] + t[at] / inside
        side = np.sign(np.arange(len(middles)) - at)
        slopes = np.where(side > 0, quantile, np.where(side < 0, quantile - 1, 0.0)) / len(quantiles)
        slope, straight = slope + slopes, straight + slopes * (middles - value)
        deviation = math.sqrt(max(squares[at] / inside - (t[at] / inside) ** 2, 0.0))
        spread, size = spread + deviation * inside, size + abs(value) * inside
        values.append(float(value))
    # In a bin, the loss of the constant is straight + slope * t.
    total = float((straight * sums.rows + slope * t).sum())
    if not spread / 2 <= _COARSE * total * len(quantiles) and spread > 1e-9 * size:
        return None, values

    def difference(sums: Sums) -> Difference:
        t, squares, loss, loss_squares, t_loss = sums.sums.T
        differences, squares = sum_line_differences(straight, slope, sums.rows, t, squares, loss, loss_squares, t_loss)
        return float(sums.rows.sum()), float(differences.sum()), float(squares.sum())

    return compare_pairs(total / rows, difference, weighted), values


def quantile_bins(quantiles: Sequence[float]) -> Callable[[Numbers, Numbers], Binned]:
    """Return the function that assigns rows to bins of labels, to sum the loss of quantiles."""

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        _, bins, t = _label_bins(labels)
        with np.errstate(over="ignore", invalid="ignore"):
            loss = losses(labels, predictions, quantiles)
            return bins, np.stack([t, t**2, loss, loss**2, t * loss], axis=1)

    return bins


def compare_quantiles(quantiles: Sequence[float], weighted: WeightedSums) -> dict[str, Compared]:
    """Compare the loss of quantiles, and the interval between them, with the quantiles of the labels."""
    weighted = _drop_ignored(weighted)
    if not len(weighted.sums.bins):
        return {}
    loss, values = _compare_quantile_loss(weighted, _middles(weighted.sums.bins), quantiles)
    interval_metrics = {
        # The quantiles of the labels enclose exactly their share of the labels.
        "interval_coverage": Compared(quantiles[-1] - quantiles[0]),
        "interval_width": Compared(values[-1] - values[0]),
    }
    return interval_metrics if loss is None else {**interval_metrics, "quantile_loss": loss}


def deviance_bins(power: float) -> Callable[[Numbers, Numbers], Binned]:
    """Return the function that sums, in one bin, the deviance relative to the deviance of predicting 1."""

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        y = labels.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            reference = deviances(labels, np.ones(len(y)), power)
            loss = deviances(labels, predictions, power) - reference
            summands = np.stack([y, y**2, loss, loss**2, y * loss, reference], axis=1)
        return np.zeros(len(y), np.int64), summands

    return bins


def compare_deviance(power: float, name: str, weighted: WeightedSums) -> dict[str, Compared]:
    """Compare the mean deviance with predicting the labels' mean.

    Both are relative to the deviance of predicting 1, so that the deviance of the constant is linear in the label.
    """
    rows, (y, *_, reference) = weighted.sums.total()
    mean = y / rows if rows else 0.0
    if not mean > 0:
        return {name: Compared(0.0 if mean == 0 and rows else math.nan)}
    slope = -2 * (math.log(mean) if power == 1 else (mean ** (1 - power) - 1) / (1 - power))
    straight = 2 * (mean ** (2 - power) - 1) / (2 - power)

    def difference(sums: Sums) -> Difference:
        rows, (y, y2, loss, loss2, y_loss, _) = sums.total()
        return rows, *sum_line_differences(straight, slope, rows, y, y2, loss, loss2, y_loss)

    return {name: compare_pairs((reference + rows * straight + slope * y) / rows, difference, weighted)}


def _middles(bins: Any) -> Floats:
    low, high = number_bin_edges(bins)
    middles: Floats = (low + high) / 2
    return middles
