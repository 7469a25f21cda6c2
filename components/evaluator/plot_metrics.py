"""Metrics that add confidence intervals and plots to an evaluation.

Both are written to TFMA's own files. TFMA computes intervals with the jackknife, which aggregates everything twenty
times; these are computed from the counts of one pass.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import metrics_for_slice_pb2 as protos

from components.compat import tfma as compat
from components.evaluator import intervals
from components.evaluator.intervals import Interval, ScoreBins
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.plot_data import AT

RESIDUALS = "residuals"
"""The name of the plot of rows by residual, that is, label - prediction."""
_BUCKETS = 200
"""Greatest number of buckets of a plot, per slice and part."""
_STEP, _SMALLEST = math.log(1.001), 1e-12
"""Numbers are counted in bins whose relative width is 0.001; smaller numbers count as 0."""
_LOG_SMALLEST, _GREATEST = math.log(_SMALLEST), 690.0
"""The logarithms of the smallest and of the greatest bin edge."""

Results = Mapping[Any, Any]
"""TFMA's keys → results of the computations for a slice."""


class BinaryDiagnostics(KeyedMetric):
    """Plot and intervals of a binary task, computed from the histogram of its AUC.

    Args:
      name: a name for the computation; no metric has it.
      metrics: the metrics to add intervals to, by their names in the config.
    """

    def __init__(self, name: str, metrics: list[str]) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            counted = compat.histogram_computations(eval_config, **key_fields)
            histogram = counted[-1].keys[-1]

            def bounded(results: Results) -> dict[Any, Any]:
                bins = _bins(results[histogram])
                return _bounded(results, key_fields, metrics, functools.partial(_of_binary, bins))

            def plot(results: Results) -> dict[Any, Any]:
                return {
                    tfma.metrics.PlotKey(name=compat.PREDICTIONS_PLOT, **key_fields): _of_histogram(results[histogram])
                }

            return [*counted, *_derived(name, key_fields, plot, bounded)]

        super().__init__(name, computations)


class RegressionDiagnostics(KeyedMetric):
    """Plots of a regression, of labels by prediction and of residuals, and the intervals of its mean errors."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _of_regression)


class RateDiagnostics(KeyedMetric):
    """The intervals of metrics that are a share of all rows.

    Args:
      name: a name for the computation; no metric has it.
      metrics: the metrics, by their names in the config.
      rows: the name of the metric that counts the rows.
    """

    def __init__(self, name: str, metrics: list[str], rows: str) -> None:
        def computations(name: str, _: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            def bounded(results: Results) -> dict[Any, Any]:
                count = next(float(value) for key, value in results.items() if key.name == rows)
                return _bounded(results, key_fields, metrics, lambda _, value: intervals.of_rate(value, count))

            return _derived(name, key_fields, None, bounded)

        super().__init__(name, computations)


def bounded(value: float, interval: Interval | None) -> Any:
    """Returns a value with its interval as TFMA's message, or the value if there is no interval."""
    if interval is None or not all(map(math.isfinite, interval)):
        return value
    low, high = interval
    return protos.BoundedValue(value={"value": value}, lower_bound={"value": low}, upper_bound={"value": high})


def _derived(
    name: str,
    key_fields: Mapping[str, Any],
    plot: Callable[[Results], dict[Any, Any]] | None,
    bounds: Callable[[Results], dict[Any, Any]],
) -> list[Any]:
    """Returns the computations of a plot and of intervals."""
    plots = [] if plot is None else [tfma.metrics.DerivedMetricComputation([_key(f"{name} plot", key_fields)], plot)]
    return [*plots, compat.interval_computation(_key(name, key_fields), bounds)]


def _key(name: str, key_fields: Mapping[str, Any]) -> Any:
    return tfma.metrics.MetricKey(name=name, **key_fields)


def _bounded(
    results: Results,
    key_fields: Mapping[str, Any],
    metrics: Sequence[str],
    interval: Callable[[str, float], Interval | None],
) -> dict[Any, Any]:
    """Returns those of the metrics that were computed, with their intervals."""
    keys = {_key(name, key_fields): name for name in metrics}
    return {
        key: bounded(float(results[key]), interval(name, float(results[key])))
        for key, name in keys.items()
        if key in results
    }


def _of_binary(bins: ScoreBins, metric: str, value: float) -> Interval | None:
    rows, positives = bins.rows.sum(), bins.labels.sum()
    trials = {
        "binary_accuracy": rows,
        "positive_rate": rows,
        "recall": positives,
        "false_negative_rate": positives,
        "false_positive_rate": rows - positives,
        "precision": bins.rows[bins.predictions >= AT * bins.rows].sum(),
    }
    if metric in trials:
        return intervals.of_rate(value, trials[metric])
    if metric == "auc_precision_recall":
        return intervals.of_auc_precision_recall(value, positives)
    others = {
        "auc": intervals.of_auc,
        "binary_crossentropy": intervals.of_crossentropy,
        "calibration": intervals.of_calibration,
    }
    return others[metric](value, bins) if metric in others else None


def _bins(histogram: Sequence[Any]) -> ScoreBins:
    """Returns the buckets of TFMA's histogram that are not empty."""
    nonempty = [each for each in histogram if each.weighted_examples > 0]
    sums = (
        np.array([getattr(each, name) for each in nonempty])
        for name in ("weighted_examples", "weighted_labels", "weighted_predictions")
    )
    return ScoreBins(*sums)


def _of_histogram(histogram: Sequence[Any]) -> Any:
    """Makes a plot of TFMA's histogram.

    Buckets are merged to about equal shares of both classes, so that a curve has points where the rows of the rarer
    class are. No merged bucket contains the threshold of the confusion matrix.
    """
    bins = _bins(histogram)
    at = np.array([each.bucket_id for each in histogram if each.weighted_examples > 0])
    # The histogram has extra buckets for predictions below 0 and for 1.
    edges = np.stack([at - 1, at], axis=1).clip(0, compat.HISTOGRAM_BUCKETS) / compat.HISTOGRAM_BUCKETS
    classes = [each for each in (bins.labels, bins.rows - bins.labels) if each.sum() > 0]
    if not classes:
        return protos.CalibrationHistogramBuckets()
    return _plot(edges, bins, sum(each / each.sum() for each in classes), edges[:, 0] >= AT)


def _plot(
    edges: npt.NDArray[np.float64],
    bins: ScoreBins,
    weights: npt.NDArray[np.float64],
    part: npt.NDArray[np.bool_] | bool = False,
) -> protos.CalibrationHistogramBuckets:
    """Makes TFMA's plot of bins; neighbours are merged if there are too many.

    Args:
      edges: lower and upper bound of each bin, [bins, 2].
      bins: at least one bin.
      weights: weight of each bin; merged bins have about equal weights, [bins].
      part: part of each bin; bins of different parts are not merged, [bins].
    """
    before = np.cumsum(weights) - weights
    group = (before * ((_BUCKETS - 1) / weights.sum())).astype(int) + part * _BUCKETS
    starts = np.flatnonzero(np.diff(group, prepend=-1)).tolist()
    plot = protos.CalibrationHistogramBuckets()
    for start, stop in zip(starts, [*starts[1:], len(edges)], strict=True):
        rows, labels, predictions = (
            float(sums[start:stop].sum()) for sums in (bins.rows, bins.labels, bins.predictions)
        )
        plot.buckets.add(
            lower_threshold_inclusive=edges[start, 0],
            upper_threshold_exclusive=edges[stop - 1, 1],
            num_weighted_examples={"value": rows},
            total_weighted_label={"value": labels},
            total_weighted_refined_prediction={"value": predictions},
        )
    return plot


@dataclass
class _Errors:
    """The accumulator of a regression.

    Attributes:
      rows: number of rows, weighted.
      powers: the sums of |label - prediction|, its square and its fourth power.
      predictions: bin → rows, sum of labels, sum of predictions.
      residuals: bin → rows, 0, sum of residuals.
    """

    rows: float = 0.0
    powers: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    predictions: dict[int, list[float]] = field(default_factory=dict)
    residuals: dict[int, list[float]] = field(default_factory=dict)


class _Regression(beam.CombineFn):  # type: ignore[misc]
    """Adds the rows of a regression to an accumulator."""

    def __init__(self, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> None:
        self._eval_config, self._key_fields = eval_config, key_fields

    def create_accumulator(self) -> _Errors:
        return _Errors()

    def add_input(self, errors: _Errors, element: Any) -> _Errors:
        rows = compat.label_prediction_weight(element, self._eval_config, **self._key_fields)
        for labels, predictions, weights in rows:
            weight = float(np.ravel(weights)[0])
            for label, prediction in zip(np.ravel(labels).tolist(), np.ravel(predictions).tolist(), strict=True):
                _count(errors, label, prediction, weight)
        return errors

    def merge_accumulators(self, accumulators: Iterable[_Errors]) -> _Errors:
        merged = _Errors()
        for errors in accumulators:
            merged.rows += errors.rows
            merged.powers = [one + other for one, other in zip(merged.powers, errors.powers, strict=True)]
            for into, summands in ((merged.predictions, errors.predictions), (merged.residuals, errors.residuals)):
                for at, sums in summands.items():
                    _add(into, at, sums)
        return merged

    def extract_output(self, errors: _Errors) -> dict[Any, _Errors]:
        return {_key(_ERRORS, self._key_fields): errors}


_ERRORS = compat.private("errors_of_regression")


def _of_regression(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
    key = _key(_ERRORS, key_fields)

    def interval(errors: _Errors, metric: str, value: float) -> Interval | None:
        squares = errors.powers[1 if metric == "mean_absolute_error" else 2]
        return intervals.of_mean(value, squares / errors.rows, errors.rows) if errors.rows else None

    def bounded(results: Results) -> dict[Any, Any]:
        of = functools.partial(interval, results[key])
        return _bounded(results, key_fields, ("mean_absolute_error", "mean_squared_error"), of)

    def plots(results: Results) -> dict[Any, Any]:
        classes_by_plot = {compat.PREDICTIONS_PLOT: results[key].predictions, RESIDUALS: results[key].residuals}
        return {
            tfma.metrics.PlotKey(name=each, **key_fields): _of_classes(classes)
            for each, classes in classes_by_plot.items()
            if classes
        }

    counted = tfma.metrics.MetricComputation([key], None, _Regression(eval_config, key_fields))
    return [counted, *_derived(name, key_fields, plots, bounded)]


def _count(errors: _Errors, label: float, prediction: float, weight: float) -> None:
    residual = label - prediction
    square = residual * residual
    errors.rows += weight
    for at, power in enumerate((abs(residual), square, square * square)):
        errors.powers[at] += weight * power
    if math.isfinite(residual):
        _add(errors.predictions, _class(prediction), (weight, weight * label, weight * prediction))
        _add(errors.residuals, _class(residual), (weight, 0.0, weight * residual))


def _class(value: float) -> int:
    """Returns the bin of a number; bins have the order of their numbers."""
    size = abs(value)
    if size < _SMALLEST:
        return 0
    at = int((math.log(size) - _LOG_SMALLEST) / _STEP) + 1
    return at if value > 0 else -at


def _add(into: dict[int, list[float]], at: int, sums: Sequence[float]) -> None:
    totals = into.setdefault(at, [0.0, 0.0, 0.0])
    for index, each in enumerate(sums):
        totals[index] += each


def _of_classes(classes: Mapping[int, Sequence[float]]) -> Any:
    """Makes a plot of numbers counted by bin."""
    at = np.array(sorted(classes))
    bins = ScoreBins(*np.array([classes[each] for each in at.tolist()]).T)
    near, far = (
        np.where(at == 0, 0.0, np.exp(np.minimum(_LOG_SMALLEST + (np.abs(at) - less) * _STEP, _GREATEST)))
        for less in (1, 0)
    )
    edges = np.where((at < 0)[:, None], np.stack([-far, -near], axis=1), np.stack([near, far], axis=1))
    return _plot(edges, bins, bins.rows)
