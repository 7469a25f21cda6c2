"""Metrics of regressions and multiclass tasks that TFMA lacks, as functions of sums."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from components.data.forecast_columns import SCALE
from components.evaluator.binning import Binned, Floats, Numbers, Sums, in_one_bin, mean
from components.evaluator.columnar_metric import COLUMN, ColumnarMetric, MeanMetric
from components.evaluator.crossentropy import select_label_probabilities


class RootOfSquaredErrors(ColumnarMetric):
    """The square root of the mean squared error; NaN without rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _bin_squared_errors, lambda sums: math.sqrt(mean(sums)))


class ExplainedShare(ColumnarMetric):
    """The coefficient of determination, 1 - (sum of squared errors) / (sum of squared deviations of the labels).

    NaN if the labels are equal.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, _bin_deviations, _compute_explained_share)


class MeanDeviance(MeanMetric):
    """The mean deviance of a Tweedie distribution: twice the difference of the log-likelihoods of label and prediction.

    Infinite if a prediction is not positive or a label is negative, because the distribution is not defined there.

    Source: B. Jørgensen, Exponential dispersion models, Journal of the Royal Statistical Society B 49, 1987.

    Args:
      name: Name of the metric.
      power: Power of the mean to which the variance is proportional; 1 (Poisson), or between 1 and 2.
    """

    def __init__(self, name: str, power: float) -> None:
        super().__init__(name, lambda labels, predictions: deviances(labels, predictions, power))


def deviances(labels: Numbers, predictions: Numbers, power: float) -> Floats:
    """Return the deviances of rows, [rows]; see `MeanDeviance`."""
    y, mu = labels.astype(np.float64), predictions.astype(np.float64)
    with np.errstate(all="ignore"):
        if power == 1:
            halves = special.xlogy(y, y) - special.xlogy(y, mu) - y + mu
        else:
            halves = y ** (2 - power) / ((1 - power) * (2 - power))
            halves += -y * mu ** (1 - power) / (1 - power) + mu ** (2 - power) / (2 - power)
    # A deviance is never negative, except for a rounding error.
    return np.where((mu <= 0) | (y < 0), np.inf, 2 * np.maximum(halves, 0.0))


class MeanScaledError(MeanMetric):
    """The mean of the absolute errors, each divided by the seasonal scale: below 1, forecasts are better than the
    seasonal naive forecast was in the past of the series. Rows whose scale is unknown or 0 are ignored.

    Source: R. J. Hyndman and A. B. Koehler, Another look at measures of forecast accuracy, International Journal of
    Forecasting 22, 2006. The scale of a forecast is computed from the past of its origin.
    """

    def __init__(self, name: str) -> None:
        def values(labels: Numbers, columns: Numbers) -> Floats:
            return scaled_errors(labels, *np.broadcast_to(columns.T, (2, len(labels))))

        super().__init__(name, values, output=f",{COLUMN}{SCALE}")


class SymmetricPercentageError(MeanMetric):
    """The mean of the absolute errors in percent of the mean of |label| and |prediction|; from 0 to 200.

    Source: S. Makridakis, Accuracy measures: theoretical and practical concerns, International Journal of Forecasting
    9, 1993.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, percentage_errors)


class WeightedPercentageError(ColumnarMetric):
    """The sum of the absolute errors in percent of the sum of the absolute labels; NaN if all labels are 0."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _bin_errors, _compute_share_of_labels)


def scaled_errors(labels: Numbers, predictions: Numbers, scales: Numbers) -> Floats:
    """Return the absolute errors divided by the scales, [rows]; NaN where the scale is not above 0."""
    known = scales > 0
    errors = np.abs(labels.astype(np.float64) - predictions)
    return np.where(known, errors / np.where(known, scales, 1.0), np.nan)


def percentage_errors(labels: Numbers, predictions: Numbers) -> Floats:
    """Return the absolute errors in percent of the mean size of label and prediction, [rows]; 0 if both are 0."""
    y, f = labels.astype(np.float64), predictions.astype(np.float64)
    sizes = np.abs(y) + np.abs(f)
    return 200 * np.abs(y - f) / np.where(sizes == 0, 1.0, sizes)


class TopClassAccuracy(ColumnarMetric):
    """The share of rows whose label is among the most probable classes.

    A label that the model does not know is never among them. Classes with the same probability as the label count as
    less probable, as in tf.math.in_top_k.

    Args:
      name: Name of the metric.
      classes: Number of classes.
    """

    def __init__(self, name: str, classes: int) -> None:
        def hits(labels: Numbers, predictions: Numbers) -> Binned:
            return in_one_bin(is_among_top(labels, predictions, classes))

        super().__init__(name, hits, mean)


def is_among_top(labels: Numbers, predictions: Numbers, classes: int) -> npt.NDArray[np.bool_]:
    """Return whether each label is among the most probable classes, bool [rows]; see `TopClassAccuracy`."""
    probabilities = select_label_probabilities(labels, predictions)
    known = (labels >= 0) & (labels < predictions.shape[1])
    return np.asarray(known & ((predictions > probabilities[:, np.newaxis]).sum(axis=1) < classes))


def _bin_squared_errors(labels: Numbers, predictions: Numbers) -> Binned:
    return in_one_bin(np.square(labels.astype(np.float64) - predictions))


def _bin_errors(labels: Numbers, predictions: Numbers) -> Binned:
    values = labels.astype(np.float64)
    return in_one_bin(np.abs(values - predictions), np.abs(values))


def _compute_share_of_labels(sums: Sums) -> float:
    _, (errors, labels) = sums.total()
    return float(100 * errors / labels) if labels else math.nan


def _bin_deviations(labels: Numbers, predictions: Numbers) -> Binned:
    values = labels.astype(np.float64)
    return in_one_bin(np.square(values - predictions), values, np.square(values))


def _compute_explained_share(sums: Sums) -> float:
    rows, totals = sums.total()
    if not rows:
        return math.nan
    errors, labels, squares = totals.tolist()
    deviations = squares - labels**2 / rows
    # A sum that is smaller relative to the squares is a rounding error.
    return float(1 - errors / deviations) if deviations > 1e-12 * squares else math.nan
