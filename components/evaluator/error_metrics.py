"""Metrics of a regression and of a multiclass task that TFMA lacks, as functions of sums."""

from __future__ import annotations

import math

import numpy as np

from components.compat.tfma.columnar import Binned, Numbers, Sums, in_one_bin, mean
from components.evaluator.columnar_metric import ColumnarMetric
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


class QuantileLoss(ColumnarMetric):
    """The mean of the greater of quantile * error and (quantile - 1) * error, where error is label - prediction.

    Source: R. Koenker and G. Bassett, Regression quantiles, Econometrica 46, 1978.

    Args:
      name: the metric's name.
      quantile: the predicted quantile, between 0 and 1.
    """

    def __init__(self, name: str, quantile: float) -> None:
        def losses(labels: Numbers, predictions: Numbers) -> Binned:
            errors = labels.astype(np.float64) - predictions
            return in_one_bin(np.maximum(quantile * errors, (quantile - 1) * errors))

        super().__init__(name, losses, mean)


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
            own = of_label(labels, predictions)
            known = (labels >= 0) & (labels < predictions.shape[1])
            return in_one_bin(known & ((predictions > own[:, np.newaxis]).sum(axis=1) < classes))

        super().__init__(name, hits, mean)


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
