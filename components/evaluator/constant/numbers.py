"""The comparison for regressions: with the mean, the median and the quantiles of the labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from components.compat.tfma.columnar import DROPPED, Binned, Floats, Ints, Numbers, Sums
from components.evaluator.columnar_metric import WeightedSums
from components.evaluator.constant.paired import Compared, Difference, moments, of_line, of_squares, paired
from components.evaluator.error_metrics import deviances
from components.evaluator.plot_metrics import number_bins, of_number_bins
from components.evaluator.quantile_metrics import losses

_COARSE = 0.01
"""Greatest share of the median's own bin in the mean absolute error of the median."""


def regression_bins(labels: Numbers, predictions: Numbers) -> Binned:
    """Return bins of labels; a summand is about the label minus the middle of its bin, so that no digits are lost."""
    y, bins, t = _label_bins(labels)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(y - predictions)
        summands = np.stack([*moments(t, error**2), error, t * error], axis=1)
    return bins, summands


def _label_bins(labels: Numbers) -> tuple[Floats, Ints, Floats]:
    """Return the labels, their bins, and by how much they are above the middle of the bin."""
    y = labels.astype(np.float64)
    bins = np.where(np.isfinite(y), number_bins(np.where(np.isfinite(y), y, 0.0)), DROPPED)
    with np.errstate(over="ignore", invalid="ignore"):
        return y, bins, np.where(bins == DROPPED, 0.0, y - _middles(bins))


def _counted(weighted: WeightedSums) -> WeightedSums:
    return weighted.select(weighted.sums.bins != DROPPED)


def compare_regression(weighted: WeightedSums, *_: WeightedSums) -> dict[str, Compared]:
    """Compare squared errors with those of the labels' mean, absolute ones with those of their median."""
    weighted = _counted(weighted)
    sums = weighted.sums
    if not len(sums.bins):
        return {}
    rows, middles, shifted = float(sums.rows.sum()), _middles(sums.bins), sums.sums[:, 0]
    mean = float((sums.rows * middles + shifted).sum() / rows)
    found = {"mean_squared_error": of_squares(weighted, middles, mean)}
    if found["mean_squared_error"].value >= 0:
        found["r_squared"] = Compared(0.0)
        found["root_mean_squared_error"] = Compared(math.sqrt(found["mean_squared_error"].value))
    return found | _of_median(weighted, middles)


def _of_median(weighted: WeightedSums, middles: Floats) -> dict[str, Compared]:
    """Compare the mean absolute error, which is twice the loss of the median."""

    def halves(sums: Sums) -> Sums:
        t, squares, error_squares, errors, t_errors = (sums.sums[:, each] for each in (0, 1, 4, 8, 9))
        return Sums(sums.bins, sums.rows, np.stack([t, squares, errors / 2, error_squares / 4, t_errors / 2], axis=1))

    found, _ = _of_quantiles(WeightedSums(*map(halves, weighted)), middles, (0.5,))
    if found is None:
        return {}
    ends = None if found.interval is None else (2 * found.interval[0], 2 * found.interval[1])
    return {"mean_absolute_error": Compared(2 * found.value, 2 * found.gain, ends)}


def _of_quantiles(
    weighted: WeightedSums, middles: Floats, quantiles: Sequence[float]
) -> tuple[Compared | None, list[float]]:
    """Compare the mean loss of quantiles with that of the labels' quantiles, the means of their bins.

    In a quantile's bin the loss counts as 0. Bins have a relative width of 0.001. If the labels in such a bin differ
    too much for that, as large numbers close to each other do, the first result is None.

    Args:
      weighted: of the summands of `quantile_bins`.
      middles: of the bins; [bins].
      quantiles: the quantiles.

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
    # The constant's loss in a bin is straight + slope * t.
    total = float((straight * sums.rows + slope * t).sum())
    if not spread / 2 <= _COARSE * total * len(quantiles) and spread > 1e-9 * size:
        return None, values

    def difference(of: Sums) -> Difference:
        t, squares, loss, loss_squares, t_loss = of.sums.T
        of_bins, squares_of_bins = of_line(straight, slope, of.rows, t, squares, loss, loss_squares, t_loss)
        return float(of.rows.sum()), float(of_bins.sum()), float(squares_of_bins.sum())

    return paired(total / rows, difference, weighted), values


def quantile_bins(quantiles: Sequence[float]) -> Callable[[Numbers, Numbers], Binned]:
    """Return the function that sums the loss of quantiles by bins of labels."""

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        _, bins, t = _label_bins(labels)
        with np.errstate(over="ignore", invalid="ignore"):
            loss = losses(labels, predictions, quantiles)
            return bins, np.stack([t, t**2, loss, loss**2, t * loss], axis=1)

    return bins


def compare_quantiles(quantiles: Sequence[float], weighted: WeightedSums) -> dict[str, Compared]:
    """Compare the loss of quantiles, and the interval between them, with the labels' own quantiles."""
    weighted = _counted(weighted)
    if not len(weighted.sums.bins):
        return {}
    found, values = _of_quantiles(weighted, _middles(weighted.sums.bins), quantiles)
    # The labels' own quantiles enclose their share of the labels.
    of_interval = {
        "interval_coverage": Compared(quantiles[-1] - quantiles[0]),
        "interval_width": Compared(values[-1] - values[0]),
    }
    return {**({} if found is None else {"quantile_loss": found}), **of_interval}


def deviance_bins(power: float) -> Callable[[Numbers, Numbers], Binned]:
    """Return the function that sums the deviance of a power, relative to that of a prediction of 1, in one bin."""

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        y = labels.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            of_one = deviances(labels, np.ones(len(y)), power)
            loss = deviances(labels, predictions, power) - of_one
            summands = np.stack([y, y**2, loss, loss**2, y * loss, of_one], axis=1)
        return np.zeros(len(y), np.int64), summands

    return bins


def compare_deviance(power: float, name: str, weighted: WeightedSums) -> dict[str, Compared]:
    """Compare the mean deviance with that of the labels' mean, both relative to the deviance of a prediction of 1.

    Relative to that, the constant's deviance is linear in the label.
    """
    rows, (y, *_, of_one) = weighted.sums.total()
    mean = y / rows if rows else 0.0
    if not mean > 0:
        return {name: Compared(0.0 if mean == 0 and rows else math.nan)}
    slope = -2 * (math.log(mean) if power == 1 else (mean ** (1 - power) - 1) / (1 - power))
    straight = 2 * (mean ** (2 - power) - 1) / (2 - power)

    def difference(of: Sums) -> Difference:
        rows, (y, y2, loss, loss2, y_loss, _) = of.total()
        return rows, *of_line(straight, slope, rows, y, y2, loss, loss2, y_loss)

    return {name: paired((of_one + rows * straight + slope * y) / rows, difference, weighted)}


def _middles(bins: Any) -> Floats:
    low, high = of_number_bins(bins)
    middles: Floats = (low + high) / 2
    return middles
