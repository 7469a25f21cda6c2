"""Metrics of a binary task that TFMA lacks, or counts row by row: made from the histogram that its AUC needs anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import calibration_histogram

_BINS = 10
_FINE = calibration_histogram.DEFAULT_NUM_BUCKETS

Histogram = Sequence[Any]
"""Buckets of equal width over the predictions from 0 to 1, counted from 1: in each the number of examples, the sum of
their labels and that of their predictions. Empty ones are left out."""


class _OfHistogram(tfma.metrics.Metric):  # type: ignore[misc]
    """A metric that follows from the histogram."""

    def __init__(self, name: str, value: Callable[[Histogram], float]) -> None:
        def computations(
            name: str,
            eval_config: tfma.EvalConfig | None = None,
            model_name: str = "",
            output_name: str = "",
            example_weighted: bool = False,
        ) -> list[Any]:
            named = {"model_name": model_name, "output_name": output_name, "example_weighted": example_weighted}
            counted = calibration_histogram.calibration_histogram(eval_config=eval_config, **named)
            histogram, key = counted[-1].keys[-1], tfma.metrics.MetricKey(name=name, **named)
            derived = tfma.metrics.DerivedMetricComputation([key], lambda found: {key: value(found[histogram])})
            return [*counted, derived]

        super().__init__(tfma.metrics.merge_per_key_computations(computations), name=name)


class HistogramCalibration(_OfHistogram):
    """The mean prediction, divided by the mean label; NaN where no label is 1."""

    def __init__(self, name: str) -> None:
        super().__init__(name, calibration)


class ExpectedCalibrationError(_OfHistogram):
    """How far predictions are from what happens: |mean prediction - mean label| in ten bins, weighted by their rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name, expected_calibration_error)


class HistogramPrevalence(_OfHistogram):
    """The share of rows with the label 1."""

    def __init__(self, name: str) -> None:
        super().__init__(name, prevalence)


def calibration(histogram: Histogram) -> float:
    """Sum of predictions over sum of labels."""
    labels = sum(bucket.weighted_labels for bucket in histogram)
    return sum(bucket.weighted_predictions for bucket in histogram) / labels if labels else float("nan")


def expected_calibration_error(histogram: Histogram) -> float:
    """The mean over all rows of what their bin is off."""
    off = [0.0] * _BINS
    for bucket in histogram:
        # What lies below 0 or at 1 has buckets of its own.
        at = min(max((bucket.bucket_id - 1) * _BINS // _FINE, 0), _BINS - 1)
        off[at] += bucket.weighted_predictions - bucket.weighted_labels
    rows = sum(bucket.weighted_examples for bucket in histogram)
    return sum(map(abs, off)) / rows if rows else float("nan")


def prevalence(histogram: Histogram) -> float:
    """Mean label."""
    rows = sum(bucket.weighted_examples for bucket in histogram)
    return sum(bucket.weighted_labels for bucket in histogram) / rows if rows else float("nan")
