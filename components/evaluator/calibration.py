"""Metrics of a binary task that TFMA lacks or computes per row, computed from the histogram of its AUC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow_model_analysis as tfma

from components.compat import tfma as compat
from components.evaluator.keyed_metric import KeyedMetric

_BINS = 10

Histogram = Sequence[Any]
"""Buckets of equal width over predictions in [0, 1], numbered from 1: in each the number of rows, the sum of their
labels and the sum of their predictions. Empty buckets are left out; see compat.histogram_computations."""


class _HistogramMetric(KeyedMetric):
    """A metric that is a function of the histogram."""

    def __init__(self, name: str, value: Callable[[Histogram], float]) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            counted = compat.histogram_computations(eval_config, **key_fields)
            histogram, key = counted[-1].keys[-1], tfma.metrics.MetricKey(name=name, **key_fields)
            derived = tfma.metrics.DerivedMetricComputation([key], lambda results: {key: value(results[histogram])})
            return [*counted, derived]

        super().__init__(name, computations)


class HistogramCalibration(_HistogramMetric):
    """The mean prediction divided by the mean label; NaN if no label is 1."""

    def __init__(self, name: str) -> None:
        super().__init__(name, calibration)


class ExpectedCalibrationError(_HistogramMetric):
    """The mean of |mean prediction - mean label| over ten bins of predictions, weighted by their rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name, expected_calibration_error)


class HistogramPrevalence(_HistogramMetric):
    """The share of rows with the label 1."""

    def __init__(self, name: str) -> None:
        super().__init__(name, prevalence)


def calibration(histogram: Histogram) -> float:
    """Computes sum of predictions / sum of labels; NaN if no label is 1."""
    labels = sum(bucket.weighted_labels for bucket in histogram)
    return sum(bucket.weighted_predictions for bucket in histogram) / labels if labels else float("nan")


def expected_calibration_error(histogram: Histogram) -> float:
    """Computes the mean of |mean prediction - mean label| over bins, weighted by rows; NaN without rows."""
    differences = [0.0] * _BINS
    for bucket in histogram:
        # The histogram has extra buckets for predictions below 0 and for 1.
        at = min(max((bucket.bucket_id - 1) * _BINS // compat.HISTOGRAM_BUCKETS, 0), _BINS - 1)
        differences[at] += bucket.weighted_predictions - bucket.weighted_labels
    rows = sum(bucket.weighted_examples for bucket in histogram)
    return sum(map(abs, differences)) / rows if rows else float("nan")


def prevalence(histogram: Histogram) -> float:
    """Computes the mean label; NaN without rows."""
    rows = sum(bucket.weighted_examples for bucket in histogram)
    return sum(bucket.weighted_labels for bucket in histogram) / rows if rows else float("nan")
