"""The comparison of forecasts with the seasonal naive forecast, which repeats the last season.

It takes the place of the best constant prediction: in a series, nearly every model is better than a constant.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from components.evaluator.binning import Binned, Numbers, Sums, in_one_bin
from components.evaluator.columnar_metric import WeightedSums
from components.evaluator.constant.paired import Compared, Difference, compare_pairs
from components.evaluator.error_metrics import percentage_errors, scaled_errors

METRICS = ("mase", "mean_absolute_error", "mean_squared_error", "root_mean_squared_error", "smape", "wape")
"""Metrics of the seasonal naive forecast. No other comparison has `mase`; see `reference_of`."""
JUDGED = ("mean_absolute_error", "mean_squared_error")


def naive_bins(labels: Numbers, columns: Numbers) -> Binned:
    """Return the summands of all rows with a seasonal naive forecast.

    Args:
      labels: Labels; [rows].
      columns: Predictions, seasonal naive forecasts and seasonal scales, [rows, 3]; NaN, [rows], if they are unknown.
    """
    y = labels.astype(np.float64)
    # An evaluation of answers to requests does not have the columns.
    predictions, naive, scales = np.broadcast_to(columns.astype(np.float64).T, (3, len(y)))
    with np.errstate(over="ignore", invalid="ignore"):
        errors, squares = np.abs(y - naive), np.square(y - naive)
        gains = errors - np.abs(y - predictions), squares - np.square(y - predictions)
        scaled = scaled_errors(y, naive, scales)
        is_scaled = ~np.isnan(scaled)
        summands = [errors, squares, *gains, *np.square(gains), percentage_errors(y, naive), np.abs(y)]
        return in_one_bin(*summands, np.where(is_scaled, scaled, 0.0), is_scaled)


def compare_naive(weighted: WeightedSums) -> dict[str, Compared]:
    """Compare the absolute and the squared errors of the rows."""
    rows, totals = weighted.sums.total()
    if not rows:
        return {}
    errors, squares, *_, percentages, sizes, scaled, scaled_rows = totals.tolist()

    def difference(first: int, sums: Sums) -> Difference:
        rows, totals = sums.total()
        return rows, float(totals[first]), float(totals[first + 2])

    return {
        "mean_absolute_error": compare_pairs(errors / rows, functools.partial(difference, 2), weighted),
        "mean_squared_error": compare_pairs(squares / rows, functools.partial(difference, 3), weighted),
        "root_mean_squared_error": Compared(math.sqrt(squares / rows)),
        "smape": Compared(percentages / rows),
        "wape": Compared(100 * errors / sizes if sizes else math.nan),
        "mase": Compared(scaled / scaled_rows if scaled_rows else math.nan),
    }
