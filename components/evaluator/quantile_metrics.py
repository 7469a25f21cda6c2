"""Metrics of predicted quantiles: their loss, and the coverage and width of the interval between the outermost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.evaluator import intervals
from components.evaluator.binning import Floats, Numbers
from components.evaluator.columnar_metric import MeanMetric

OUTPUT = "quantiles"
"""Output of a model with the quantile loss, [rows, quantiles]; `prediction` is one of the quantiles."""


class QuantileLoss(MeanMetric):
    """The mean of the greater of quantile * error and (quantile - 1) * error, where error is label - prediction.

    Source: R. Koenker and G. Bassett, Regression quantiles, Econometrica 46, 1978.

    Args:
      name: Name of the metric.
      quantile: The quantile, between 0 and 1.
      quantiles: All quantiles that the model predicts. If empty, the prediction of the model is this quantile.
    """

    def __init__(self, name: str, quantile: float, quantiles: Sequence[float] = ()) -> None:
        def values(labels: Numbers, predictions: Numbers) -> Floats:
            if quantiles:
                predictions = to_quantiles(predictions, len(quantiles))[:, list(quantiles).index(quantile)]
            return losses(labels, predictions[:, np.newaxis], [quantile])

        super().__init__(name, values, output=OUTPUT if quantiles else "")


class MeanQuantileLoss(MeanMetric):
    """The mean loss of all quantiles that a model predicts, which its training minimizes; in the label's unit.

    Args:
      name: Name of the metric.
      quantiles: Quantiles that the model predicts.
    """

    def __init__(self, name: str, quantiles: Sequence[float]) -> None:
        super().__init__(name, lambda labels, predictions: losses(labels, predictions, quantiles), output=OUTPUT)


class IntervalCoverage(MeanMetric):
    """The share of rows whose label is in the interval from the lowest to the highest quantile, bounds included.

    For calibrated quantiles it is the difference between the highest and the lowest.

    Args:
      name: Name of the metric.
      quantiles: Quantiles that the model predicts.
    """

    def __init__(self, name: str, quantiles: Sequence[float]) -> None:
        def inside(labels: Numbers, predictions: Numbers) -> Floats:
            low, high = _ends(predictions, len(quantiles))
            return np.where(np.isnan(low), np.nan, (low <= labels) & (labels <= high))

        super().__init__(name, inside, intervals.compute_weighted_rate_interval, OUTPUT)


class IntervalWidth(MeanMetric):
    """The mean width of the interval from the lowest to the highest quantile, in the label's unit.

    Args:
      name: Name of the metric.
      quantiles: Quantiles that the model predicts.
    """

    def __init__(self, name: str, quantiles: Sequence[float]) -> None:
        def widths(_: Numbers, predictions: Numbers) -> Floats:
            low, high = _ends(predictions, len(quantiles))
            return high - low

        super().__init__(name, widths, output=OUTPUT)


def losses(labels: Numbers, predictions: Numbers, quantiles: Sequence[float]) -> Floats:
    """Return the mean loss of the quantiles in each row, [rows].

    Args:
      labels: Labels; [rows].
      predictions: Predicted quantiles; [rows, quantiles]. The losses are NaN for any other shape, for example if a
        baseline does not predict quantiles.
      quantiles: The quantiles.
    """
    errors = labels.astype(np.float64)[:, np.newaxis] - to_quantiles(predictions, len(quantiles))
    levels = np.array(quantiles)
    row_losses: Floats = np.maximum(levels * errors, (levels - 1) * errors).mean(axis=1)
    return row_losses


def to_quantiles(predictions: Numbers, count: int) -> Floats:
    """Reshape predictions to quantiles, [rows, count]; NaN if the model does not predict `count` quantiles."""
    rows = predictions.reshape(len(predictions), -1).astype(np.float64)
    return rows if rows.shape[1] == count else np.full((len(rows), count), np.nan)


def _ends(predictions: Numbers, count: int) -> tuple[Floats, Floats]:
    quantiles = to_quantiles(predictions, count)
    return quantiles[:, 0], quantiles[:, -1]
