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


class PrecisionOfTop(_HistogramMetric):
    """The share of label 1 among the rows with the highest predictions.

    Args:
      name: the metric's name.
      rows: how many rows.
    """

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, lambda histogram: _ratio(*_top(histogram, rows)))


class RecallOfTop(_HistogramMetric):
    """The share of the rows with the highest predictions in all rows with label 1; arguments as PrecisionOfTop."""

    def __init__(self, name: str, rows: int) -> None:
        def value(histogram: Histogram) -> float:
            return _ratio(_top(histogram, rows)[0], sum(bucket.weighted_labels for bucket in histogram))

        super().__init__(name, value)


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


def _top(histogram: Histogram, count: int) -> tuple[float, float]:
    """Returns the labels 1 among the `count` rows with the highest predictions, and the number of these rows.

    Of the last bucket a share counts: its rows count as equal.
    """
    labels = rows = 0.0
    for bucket in reversed(histogram):
        share = min(1.0, (count - rows) / bucket.weighted_examples) if bucket.weighted_examples else 0.0
        labels, rows = labels + share * bucket.weighted_labels, rows + share * bucket.weighted_examples
        if rows >= count:
            break
    return labels, rows


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
