"""Metrics that add confidence intervals and plots to an evaluation.

Both are written to TFMA's own files. TFMA computes intervals with the jackknife, which aggregates everything twenty
times; these are computed from the counts of one pass.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import metrics_for_slice_pb2 as protos

from components.compat import tfma as compat
from components.compat.tfma.columnar import DROPPED, Binned, Floats, Ints, Numbers, Sums, in_one_bin
from components.evaluator import intervals
from components.evaluator.columnar_metric import bounded, combined, effective, scale_of
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
            weighed, effective_rows = effective(eval_config, key_fields)

            def bounded(results: Results) -> dict[Any, Any]:
                bins = score_bins(results[histogram], scale_of(effective_rows(results)))
                return _bounded(results, key_fields, metrics, functools.partial(_of_binary, bins))

            def plot(results: Results) -> dict[Any, Any]:
                return {
                    tfma.metrics.PlotKey(name=compat.PREDICTIONS_PLOT, **key_fields): _of_histogram(results[histogram])
                }

            return [*counted, *weighed, *_derived(name, key_fields, plot, bounded)]

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
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            weighed, effective_rows = effective(eval_config, key_fields)

            def bounded(results: Results) -> dict[Any, Any]:
                found = effective_rows(results)
                counted = next(float(value) for key, value in results.items() if key.name == rows)
                count = counted if found is None else found.rows
                return _bounded(results, key_fields, metrics, lambda _, value: intervals.of_rate(value, count))

            return [*weighed, *_derived(name, key_fields, None, bounded)]

        super().__init__(name, computations)


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


def score_bins(histogram: Sequence[Any], scale: float = 1.0) -> ScoreBins:
    """Returns the buckets of TFMA's histogram that are not empty, the sums multiplied by a factor."""
    nonempty = [each for each in histogram if each.weighted_examples > 0]
    sums = (
        scale * np.array([getattr(each, name) for each in nonempty])
        for name in ("weighted_examples", "weighted_labels", "weighted_predictions")
    )
    return ScoreBins(*sums)


def _of_histogram(histogram: Sequence[Any]) -> Any:
    """Makes a plot of TFMA's histogram.

    Buckets are merged to about equal shares of both classes, so that a curve has points where the rows of the rarer
    class are. No merged bucket contains the threshold of the confusion matrix.
    """
    bins = score_bins(histogram)
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


_ERRORS, _PREDICTED, _RESIDUALS = (
    compat.private(f"{each}_of_regression") for each in ("errors", "predictions", "residuals")
)


def _of_regression(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
    errors, predicted, residuals = (_key(each, key_fields) for each in (_ERRORS, _PREDICTED, _RESIDUALS))

    def interval(total: tuple[float, Floats], metric: str, value: float) -> Interval | None:
        rows, (squares, fourth_powers) = total
        if metric == "mean_absolute_error":
            return intervals.of_mean(value, squares / rows, rows)
        if metric == "root_mean_squared_error":
            ends = intervals.of_mean(value**2, fourth_powers / rows, rows)
            return (math.sqrt(ends[0]), math.sqrt(ends[1])) if ends else None
        return intervals.of_mean(value, fourth_powers / rows, rows)

    weighed, effective_rows = effective(eval_config, key_fields)

    def bounded(results: Results) -> dict[Any, Any]:
        total = results[errors].scaled(scale_of(effective_rows(results))).total()
        if not total[0]:
            return {}
        of = functools.partial(interval, total)
        names = ("mean_absolute_error", "mean_squared_error", "root_mean_squared_error")
        return _bounded(results, key_fields, names, of)

    def plots(results: Results) -> dict[Any, Any]:
        by_plot = {compat.PREDICTIONS_PLOT: results[predicted], RESIDUALS: results[residuals]}
        made = {tfma.metrics.PlotKey(name=each, **key_fields): _of_bins(sums) for each, sums in by_plot.items()}
        return {key: plot for key, plot in made.items() if plot is not None}

    counted = [
        combined(key, eval_config, bins, lambda sums: sums)
        for key, bins in ((errors, _squares), (predicted, _by_prediction), (residuals, _by_residual))
    ]
    return [*counted, *weighed, *_derived(name, key_fields, plots, bounded)]


def _squares(labels: Numbers, predictions: Numbers) -> Binned:
    with np.errstate(over="ignore"):
        squares = np.square(labels.astype(np.float64) - predictions)
        return in_one_bin(squares, np.square(squares))


def _by_prediction(labels: Numbers, predictions: Numbers) -> Binned:
    values = predictions.astype(np.float64)
    return _in_bins(values, labels - values, labels.astype(np.float64))


def _by_residual(labels: Numbers, predictions: Numbers) -> Binned:
    residuals = labels - predictions.astype(np.float64)
    return _in_bins(residuals, residuals, np.zeros(len(residuals)))


def _in_bins(values: Floats, residuals: Floats, labels: Floats) -> Binned:
    """Returns the bins of numbers, which have their order, with sums of labels and of the numbers.

    Rows with a residual that is not finite do not count.
    """
    counted = np.isfinite(residuals)
    values, labels = np.where(counted, values, 0.0), np.where(counted, labels, 0.0)
    return np.where(counted, number_bins(values), DROPPED), np.stack([labels, values], axis=1)


def number_bins(values: Floats) -> Ints:
    """Returns the bins of finite numbers: their relative width is 0.001, and they have the order of the numbers."""
    sizes = np.abs(values)
    large = sizes >= _SMALLEST
    at = ((np.log(np.where(large, sizes, _SMALLEST)) - _LOG_SMALLEST) / _STEP).astype(np.int64) + 1
    return np.where(large, np.where(values > 0, at, -at), 0)


def of_number_bins(bins: Ints) -> tuple[Floats, Floats]:
    """Returns the lower and the upper bounds of bins of `number_bins`."""
    near, far = (
        np.where(bins == 0, 0.0, np.exp(np.minimum(_LOG_SMALLEST + (np.abs(bins) - less) * _STEP, _GREATEST)))
        for less in (1, 0)
    )
    return np.where(bins < 0, -far, near), np.where(bins < 0, -near, far)


def _of_bins(sums: Sums) -> Any | None:
    """Makes a plot of numbers counted by bin; None without rows."""
    # All rows of a bin may have the weight 0.
    counted = (sums.bins != DROPPED) & (sums.rows > 0)
    if not counted.any():
        return None
    at = sums.bins[counted]
    bins = ScoreBins(sums.rows[counted], *sums.sums[counted].T)
    return _plot(np.stack(of_number_bins(at), axis=1), bins, bins.rows)
