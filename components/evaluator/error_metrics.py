"""Metrics of a regression and of a multiclass task that TFMA lacks, as functions of sums."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from components.compat.tfma.columnar import Binned, Floats, Numbers, Sums, in_one_bin, mean
from components.evaluator.columnar_metric import ColumnarMetric, MeanMetric
from components.evaluator.crossentropy import of_label


class RootOfSquaredErrors(ColumnarMetric):
    """The square root of the mean squared error; NaN without rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _squared_errors, lambda sums: math.sqrt(mean(sums)))


class ExplainedShare(ColumnarMetric):
    """The coefficient of determination, 1 - (sum of squared errors) / (sum of squared deviations of the labels).

    NaN if the labels are equal.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, _deviations, _explained_share)


class MeanDeviance(MeanMetric):
    """The mean deviance of a Tweedie distribution: twice the difference of the log-likelihoods of label and prediction.

    Infinite if a prediction is not above 0, or a label below 0, where there is no such distribution.

    Source: B. Jørgensen, Exponential dispersion models, Journal of the Royal Statistical Society B 49, 1987.

    Args:
      name: the metric's name.
      power: the variance is proportional to this power of the mean; 1 (Poisson), or between 1 and 2.
    """

    def __init__(self, name: str, power: float) -> None:
        super().__init__(name, lambda labels, predictions: deviances(labels, predictions, power))


def deviances(labels: Numbers, predictions: Numbers, power: float) -> Floats:
    """Return the deviance of each row, see `MeanDeviance`."""
    y, mu = labels.astype(np.float64), predictions.astype(np.float64)
    with np.errstate(all="ignore"):
        if power == 1:
            found = special.xlogy(y, y) - special.xlogy(y, mu) - y + mu
        else:
            found = y ** (2 - power) / ((1 - power) * (2 - power))
            found += -y * mu ** (1 - power) / (1 - power) + mu ** (2 - power) / (2 - power)
    # A rounding error is no negative deviance.
    return np.where((mu <= 0) | (y < 0), np.inf, 2 * np.maximum(found, 0.0))


class TopClassAccuracy(ColumnarMetric):
    """The share of rows whose label is among the most probable classes.

    A label that the model does not have is never among them. Classes as probable as the label's count as less probable,
    as in tf.math.in_top_k.

    Args:
      name: the metric's name.
      classes: how many classes.
    """

    def __init__(self, name: str, classes: int) -> None:
        def hits(labels: Numbers, predictions: Numbers) -> Binned:
            return in_one_bin(is_among_top(labels, predictions, classes))

        super().__init__(name, hits, mean)


def is_among_top(labels: Numbers, predictions: Numbers, classes: int) -> npt.NDArray[np.bool_]:
    """Return whether each label is among the most probable classes, bool [rows]; see `TopClassAccuracy`."""
    own = of_label(labels, predictions)
    known = (labels >= 0) & (labels < predictions.shape[1])
    return np.asarray(known & ((predictions > own[:, np.newaxis]).sum(axis=1) < classes))


def _squared_errors(labels: Numbers, predictions: Numbers) -> Binned:
    return in_one_bin(np.square(labels.astype(np.float64) - predictions))


def _deviations(labels: Numbers, predictions: Numbers) -> Binned:
    values = labels.astype(np.float64)
    return in_one_bin(np.square(values - predictions), values, np.square(values))


def _explained_share(sums: Sums) -> float:
    rows, totals = sums.total()
    if not rows:
        return math.nan
    errors, labels, squares = totals.tolist()
    deviations = squares - labels**2 / rows
    # A sum that is smaller relative to the squares is a rounding error.
    return float(1 - errors / deviations) if deviations > 1e-12 * squares else math.nan
