"""Metrics of predicted quantiles: their loss, and how often and how closely the outermost ones enclose the label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.compat.tfma.columnar import Floats, Numbers
from components.evaluator import intervals
from components.evaluator.columnar_metric import MeanMetric

OUTPUT = "quantiles"
"""The output of a model with the loss quantile, [rows, quantiles]; `prediction` is one of them."""


class QuantileLoss(MeanMetric):
    """The mean of the greater of quantile * error and (quantile - 1) * error, where error is label - prediction.

    Source: R. Koenker and G. Bassett, Regression quantiles, Econometrica 46, 1978.

    Args:
      name: the metric's name.
      quantile: the quantile, between 0 and 1.
      quantiles: the quantiles that the model predicts, with this one; without them, its prediction is this quantile.
    """

    def __init__(self, name: str, quantile: float, quantiles: Sequence[float] = ()) -> None:
        def values(labels: Numbers, predictions: Numbers) -> Floats:
            if quantiles:
                predictions = of_model(predictions, len(quantiles))[:, list(quantiles).index(quantile)]
            return losses(labels, predictions[:, np.newaxis], [quantile])

        super().__init__(name, values, output=OUTPUT if quantiles else "")


class MeanQuantileLoss(MeanMetric):
    """The mean of the losses of all quantiles that a model predicts: what its training minimizes, in the label's unit.

    Args:
      name: the metric's name.
      quantiles: those that the model predicts.
    """

    def __init__(self, name: str, quantiles: Sequence[float]) -> None:
        super().__init__(name, lambda labels, predictions: losses(labels, predictions, quantiles), output=OUTPUT)


class IntervalCoverage(MeanMetric):
    """The share of rows whose label is in the interval from the lowest to the highest quantile, with its bounds.

    Of calibrated quantiles it is the difference of the two.

    Args:
      name: the metric's name.
      quantiles: those that the model predicts.
    """

    def __init__(self, name: str, quantiles: Sequence[float]) -> None:
        def inside(labels: Numbers, predictions: Numbers) -> Floats:
            low, high = _ends(predictions, len(quantiles))
            return np.where(np.isnan(low), np.nan, (low <= labels) & (labels <= high))

        super().__init__(name, inside, intervals.of_weighted_rate, OUTPUT)


class IntervalWidth(MeanMetric):
    """The mean width of the interval from the lowest to the highest quantile, in the label's unit.

    Args:
      name: the metric's name.
      quantiles: those that the model predicts.
    """

    def __init__(self, name: str, quantiles: Sequence[float]) -> None:
        def widths(_: Numbers, predictions: Numbers) -> Floats:
            low, high = _ends(predictions, len(quantiles))
            return high - low

        super().__init__(name, widths, output=OUTPUT)


def losses(labels: Numbers, predictions: Numbers, quantiles: Sequence[float]) -> Floats:
    """Return the mean loss of the quantiles in each row, [rows].

    Args:
      labels: [rows].
      predictions: [rows, quantiles]; of another shape, as those of a model without quantiles, the losses are NaN.
      quantiles: the quantiles.
    """
    errors = labels.astype(np.float64)[:, np.newaxis] - of_model(predictions, len(quantiles))
    levels = np.array(quantiles)
    found: Floats = np.maximum(levels * errors, (levels - 1) * errors).mean(axis=1)
    return found


def of_model(predictions: Numbers, count: int) -> Floats:
    """Return the quantiles as [rows, count]; NaN if a model, such as a baseline, predicts another number."""
    rows = predictions.reshape(len(predictions), -1).astype(np.float64)
    return rows if rows.shape[1] == count else np.full((len(rows), count), np.nan)


def _ends(predictions: Numbers, count: int) -> tuple[Floats, Floats]:
    quantiles = of_model(predictions, count)
    return quantiles[:, 0], quantiles[:, -1]
