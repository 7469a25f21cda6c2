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
from components.evaluator import intervals, ordered_bins
from components.evaluator.columnar_metric import WeightedSums, bounded, combined, mean_and_squares, weighted_sums
from components.evaluator.config import RATES
from components.evaluator.error_metrics import is_among_top
from components.evaluator.intervals import Interval, ScoreBins
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.plot_data import AT
from components.evaluator.scores import score_computations

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
    """Plot and intervals of a binary task, computed from the rows by prediction.

    Args:
      name: a name for the computation; no metric has it.
      metrics: the metrics to add intervals to, by their names in the config.
      rates_at: the probability from which on a prediction is positive in the rates of groups.
    """

    def __init__(self, name: str, metrics: list[str], rates_at: float = AT) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            scores, bins_of = score_computations(eval_config, key_fields)

            def bounded(results: Results) -> dict[Any, Any]:
                interval = functools.partial(_of_binary, bins_of(results), rates_at)
                return _bounded(results, key_fields, metrics, interval)

            def plot(results: Results) -> dict[Any, Any]:
                key = tfma.metrics.PlotKey(name=compat.PREDICTIONS_PLOT, **key_fields)
                return {key: _of_scores(bins_of(results))}

            return [*scores, *_derived(name, key_fields, plot, bounded)]

        super().__init__(name, computations)


class RegressionDiagnostics(KeyedMetric):
    """Plots of a regression, of labels by prediction and of residuals, and the intervals of its mean errors."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _of_regression)


class RateDiagnostics(KeyedMetric):
    """The intervals of metrics that are a share of all rows: the label is among the most probable classes.

    Args:
      name: a name for the computation; no metric has it.
      metrics: the metrics, by their names in the config → how many classes; 0: the most probable one.
    """

    def __init__(self, name: str, metrics: dict[str, int]) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            needed = {
                metric: weighted_sums(f"hits_of_{metric}", eval_config, key_fields, functools.partial(_hits, classes))
                for metric, classes in metrics.items()
            }

            def interval(results: Results, metric: str, value: float) -> Interval | None:
                _, squares, rows = mean_and_squares(*(each.total() for each in needed[metric][1](results)))
                return intervals.of_weighted_rate(value, squares, rows)

            def bounded(results: Results) -> dict[Any, Any]:
                return _bounded(results, key_fields, list(metrics), functools.partial(interval, results))

            counted = [each for computations, _ in needed.values() for each in computations]
            return [*counted, *_derived(name, key_fields, None, bounded)]

        super().__init__(name, computations)


def _hits(classes: int, labels: Numbers, predictions: Numbers) -> Binned:
    # The first of equally probable classes counts in an accuracy, none of them among several.
    hit = predictions.argmax(axis=1) == labels if not classes else is_among_top(labels, predictions, classes)
    return in_one_bin(hit, hit)


def _derived(
    name: str,
    key_fields: Mapping[str, Any],
    plot: Callable[[Results], dict[Any, Any]] | None,
    bounds: Callable[[Results], dict[Any, Any]],
) -> list[Any]:
    """Return the computations of a plot and of intervals."""
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
    """Return those of the metrics that were computed, with their intervals."""
    keys = {_key(name, key_fields): name for name in metrics}
    return {
        key: bounded(float(results[key]), interval(name, float(results[key])))
        for key, name in keys.items()
        if key in results
    }


def _of_binary(bins: ScoreBins, rates_at: float, metric: str, value: float) -> Interval | None:
    if metric in _SHARES:
        return _of_share(bins, rates_at if metric in RATES else AT, metric, value)
    others = {
        "auc": intervals.of_auc,
        "auc_precision_recall": intervals.of_auc_precision_recall,
        "binary_crossentropy": intervals.of_crossentropy,
        "calibration": intervals.of_calibration,
    }
    return others[metric](value, bins) if metric in others else None


_Split = Callable[[Floats, Floats, npt.NDArray[np.bool_]], tuple[Floats, Floats]]
"""(rows with label 1, rows with label 0, whether the prediction is positive) → rows that are counted, and all rows of
which these are a share; [bins]."""
_SHARES: dict[str, _Split] = {
    "binary_accuracy": lambda ones, zeros, positive: (np.where(positive, ones, zeros), ones + zeros),
    "positive_rate": lambda ones, zeros, positive: ((ones + zeros) * positive, ones + zeros),
    "recall": lambda ones, zeros, positive: (ones * positive, ones),
    "false_negative_rate": lambda ones, zeros, positive: (ones * ~positive, ones),
    "false_positive_rate": lambda ones, zeros, positive: (zeros * positive, zeros),
    "precision": lambda ones, zeros, positive: (ones * positive, (ones + zeros) * positive),
}


def _of_share(bins: ScoreBins, at: float, metric: str, value: float) -> Interval | None:
    positive = bins.predictions >= at * bins.rows
    (hits, rows), (own_hits, own_rows) = (
        (float(each.sum()) for each in _SHARES[metric](of.labels, of.rows - of.labels, positive))
        for of in (bins, bins.squared)
    )
    if bins.by_squares is None:
        return intervals.of_rate(value, rows)
    _, squares, count = mean_and_squares((rows, (hits, hits)), (own_rows, (own_hits, own_hits)))
    return intervals.of_weighted_rate(value, squares, count)


def _of_scores(bins: ScoreBins) -> Any:
    """Make a plot of rows by prediction.

    Bins are merged to about equal shares of both classes, so that a curve has points where the rows of the rarer
    class are. No merged bin contains the threshold of the confusion matrix.
    """
    classes = [each for each in (bins.labels, bins.rows - bins.labels) if each.sum() > 0]
    if not classes:
        return protos.CalibrationHistogramBuckets()
    edges = np.stack(ordered_bins.edges_of(bins.bins), axis=1)
    return _plot(edges, bins, np.sum([each / each.sum() for each in classes], axis=0), edges[:, 0] >= AT)


def _plot(
    edges: npt.NDArray[np.float64],
    bins: ScoreBins,
    weights: npt.NDArray[np.float64],
    part: npt.NDArray[np.bool_] | bool = False,
) -> protos.CalibrationHistogramBuckets:
    """Make TFMA's plot of bins; neighbours are merged if there are too many.

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


_ERRORS = "errors_of_regression"
_PREDICTED, _RESIDUALS = (compat.private(f"{each}_of_regression") for each in ("predictions", "residuals"))


def _of_regression(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
    predicted, residuals = (_key(each, key_fields) for each in (_PREDICTED, _RESIDUALS))
    errors, totals = weighted_sums(_ERRORS, eval_config, key_fields, _errors)

    def interval(weighted: WeightedSums, metric: str, value: float) -> Interval | None:
        # The sums of the absolute errors and of their second and fourth powers.
        first = 0 if metric == "mean_absolute_error" else 1
        (rows, sums), (own_rows, own_sums) = (each.total() for each in weighted)
        _, squares, count = mean_and_squares((rows, sums[first:]), (own_rows, own_sums[first:]))
        if metric == "root_mean_squared_error":
            ends = intervals.of_mean(value**2, squares, count)
            return (math.sqrt(ends[0]), math.sqrt(ends[1])) if ends else None
        return intervals.of_mean(value, squares, count)

    def bounded(results: Results) -> dict[Any, Any]:
        weighted = totals(results)
        if not weighted.sums.total()[0]:
            return {}
        names = ("mean_absolute_error", "mean_squared_error", "root_mean_squared_error")
        return _bounded(results, key_fields, names, functools.partial(interval, weighted))

    def plots(results: Results) -> dict[Any, Any]:
        by_plot = {compat.PREDICTIONS_PLOT: results[predicted], RESIDUALS: results[residuals]}
        made = {tfma.metrics.PlotKey(name=each, **key_fields): _of_bins(sums) for each, sums in by_plot.items()}
        return {key: plot for key, plot in made.items() if plot is not None}

    counted = [
        combined(key, eval_config, bins, lambda sums: sums)
        for key, bins in ((predicted, _by_prediction), (residuals, _by_residual))
    ]
    return [*errors, *counted, *_derived(name, key_fields, plots, bounded)]


def _errors(labels: Numbers, predictions: Numbers) -> Binned:
    with np.errstate(over="ignore"):
        errors = np.abs(labels.astype(np.float64) - predictions)
        squares = np.square(errors)
        return in_one_bin(errors, squares, np.square(squares))


def _by_prediction(labels: Numbers, predictions: Numbers) -> Binned:
    values = predictions.astype(np.float64)
    return _in_bins(values, labels - values, labels.astype(np.float64))


def _by_residual(labels: Numbers, predictions: Numbers) -> Binned:
    residuals = labels - predictions.astype(np.float64)
    return _in_bins(residuals, residuals, np.zeros(len(residuals)))


def _in_bins(values: Floats, residuals: Floats, labels: Floats) -> Binned:
    """Return the bins of numbers, which have their order, with sums of labels and of the numbers.

    Rows with a residual that is not finite do not count.
    """
    counted = np.isfinite(residuals)
    values, labels = np.where(counted, values, 0.0), np.where(counted, labels, 0.0)
    return np.where(counted, number_bins(values), DROPPED), np.stack([labels, values], axis=1)


def number_bins(values: Floats) -> Ints:
    """Return the bins of finite numbers: their relative width is 0.001, and they have the order of the numbers."""
    sizes = np.abs(values)
    large = sizes >= _SMALLEST
    at = ((np.log(np.where(large, sizes, _SMALLEST)) - _LOG_SMALLEST) / _STEP).astype(np.int64) + 1
    return np.where(large, np.where(values > 0, at, -at), 0)


def of_number_bins(bins: Ints) -> tuple[Floats, Floats]:
    """Return the lower and the upper bounds of bins of `number_bins`."""
    near, far = (
        np.where(bins == 0, 0.0, np.exp(np.minimum(_LOG_SMALLEST + (np.abs(bins) - less) * _STEP, _GREATEST)))
        for less in (1, 0)
    )
    return np.where(bins < 0, -far, near), np.where(bins < 0, -near, far)


def _of_bins(sums: Sums) -> Any | None:
    """Make a plot of numbers counted by bin; None without rows."""
    # All rows of a bin may have the weight 0.
    counted = (sums.bins != DROPPED) & (sums.rows > 0)
    if not counted.any():
        return None
    at = sums.bins[counted]
    bins = ScoreBins(sums.rows[counted], *sums.sums[counted].T)
    return _plot(np.stack(of_number_bins(at), axis=1), bins, bins.rows)
