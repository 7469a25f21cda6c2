"""Metrics of a binary task that TFMA either lacks or computes row by row or from bins of equal width."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma

from components.evaluator import scores
from components.evaluator.binning import Floats
from components.evaluator.intervals import ScoreBins
from components.evaluator.keyed_metric import KeyedMetric

_BINS = 10
_NEGLIGIBLE = 1e-6
"""Bounds of an error above this number are logged."""


class _ScoreMetric(KeyedMetric):
    """A metric that is a function of the rows by prediction."""

    def __init__(self, name: str, value: Callable[[ScoreBins], float]) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            counted, select_bins = scores.score_computations(eval_config, key_fields)
            key = tfma.metrics.MetricKey(name=name, **key_fields)
            derived = tfma.metrics.DerivedMetricComputation([key], lambda results: {key: value(select_bins(results))})
            return [*counted, derived]

        super().__init__(name, computations)


class ScoreArea(_ScoreMetric):
    """The area under the ROC curve; see `scores.roc_area`."""

    def __init__(self, name: str) -> None:
        super().__init__(name, lambda bins: _log_error(name, scores.roc_area(bins), scores.error_bounds(bins)[0]))


class ScorePrecisionRecallArea(_ScoreMetric):
    """The area under the curve of precision and recall, as the average precision; see `scores.average_precision`."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name, lambda bins: _log_error(name, scores.average_precision(bins), scores.error_bounds(bins)[1])
        )


class HistogramCalibration(_ScoreMetric):
    """The mean prediction divided by the mean label; NaN if no label is 1."""

    def __init__(self, name: str) -> None:
        super().__init__(name, calibration)


class ExpectedCalibrationError(_ScoreMetric):
    """The mean of |mean prediction - mean label| over ten bins of predictions, weighted by their rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name, compute_calibration_error)


class HistogramPrevalence(_ScoreMetric):
    """The share of rows with the label 1."""

    def __init__(self, name: str) -> None:
        super().__init__(name, prevalence)


class _TopMetric(KeyedMetric):
    """A metric of the rows with the highest predictions; the number of these rows does not depend on weights."""

    def __init__(self, name: str, rows: int, value: Callable[[float, float, float], float]) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            weighted, select_bins = scores.score_computations(eval_config, key_fields)
            counted, select_counts = scores.row_counts(eval_config, key_fields)
            key = tfma.metrics.MetricKey(name=name, **key_fields)

            def derive(results: Any) -> dict[Any, float]:
                bins = select_bins(results)
                return {key: value(*_sum_top(bins, select_counts(results), rows), float(bins.labels.sum()))}

            return [*weighted, *counted, tfma.metrics.DerivedMetricComputation([key], derive)]

        super().__init__(name, computations)


class PrecisionOfTop(_TopMetric):
    """The share of label 1 among the rows with the highest predictions, by their weights.

    Args:
      name: Name of the metric.
      rows: Number of rows.
    """

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, rows, lambda labels, weights, _: _ratio(labels, weights))


class RecallOfTop(_TopMetric):
    """The share of all labels 1 that the rows with the highest predictions have; arguments as PrecisionOfTop."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, rows, lambda labels, _, all_labels: _ratio(labels, all_labels))


def calibration(bins: ScoreBins) -> float:
    """Compute sum of predictions / sum of labels; NaN if no label is 1."""
    return _ratio(float(bins.predictions.sum()), float(bins.labels.sum()))


def compute_calibration_error(bins: ScoreBins) -> float:
    """Compute the mean of |mean prediction - mean label| over bins, weighted by rows; NaN without rows."""
    at = np.clip(bins.predictions / bins.rows * _BINS, 0, _BINS - 1).astype(np.int64)
    differences = np.bincount(at, bins.predictions - bins.labels, _BINS)
    return _ratio(float(np.abs(differences).sum()), float(bins.rows.sum()))


def prevalence(bins: ScoreBins) -> float:
    """Compute the mean label; NaN without rows."""
    return _ratio(float(bins.labels.sum()), float(bins.rows.sum()))


def _sum_top(bins: ScoreBins, counts: Floats, count: int) -> tuple[float, float]:
    """Sum the weights of the labels 1 among the `count` rows with the highest predictions, and of all these rows.

    The last bin counts in part, as if all of its rows were equal.

    Args:
      bins: The rows, by weight.
      counts: Number of rows per bin.
      count: Number of rows with the highest predictions.
    """
    before = np.cumsum(counts[::-1]) - counts[::-1]
    shares = np.clip((count - before) / counts[::-1], 0.0, 1.0)
    return float((shares * bins.labels[::-1]).sum()), float((shares * bins.rows[::-1]).sum())


def _log_error(name: str, value: float, bound: float) -> float:
    if bound > _NEGLIGIBLE:
        logging.info("%s: %.6f, from bins of neighbouring predictions; exact to %.1e", name, value, bound)
    return value


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
