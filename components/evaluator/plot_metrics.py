"""Metrics that add confidence intervals and plots to an evaluation.

Both are written to TFMA's files. TFMA computes intervals with the jackknife, which aggregates all rows twenty times;
the intervals of this module follow from the counts of a single pass.
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
from components.evaluator import intervals, ordered_bins
from components.evaluator.binning import DROPPED, Binned, Floats, Ints, Numbers, Sums, in_one_bin
from components.evaluator.columnar_metric import (
    WeightedSums,
    identity,
    is_bounded_value,
    make_computation,
    make_weighted_sums,
    mean_and_squares,
    to_bounded_value,
)
from components.evaluator.config import RATES
from components.evaluator.error_metrics import is_among_top
from components.evaluator.intervals import Interval, ScoreBins
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.plot_data import AT
from components.evaluator.scores import score_computations

RESIDUALS = "residuals"
"""Name of the plot of rows by residual, label - prediction."""
_BUCKETS = 200
"""Maximum number of buckets of a plot, per slice and part."""
_STEP, _SMALLEST = math.log(1.001), 1e-12
"""Numbers are counted in bins with a relative width of 0.001; numbers below `_SMALLEST` count as 0."""
_LOG_SMALLEST, _GREATEST = math.log(_SMALLEST), 690.0
"""Logarithms of the smallest and the greatest bin edge."""

Results = Mapping[Any, Any]
"""TFMA's keys → results of the computations for a slice."""


class BinaryDiagnostics(KeyedMetric):
    """Plot and intervals of a binary task, computed from the rows by prediction.

    Args:
      name: Name of the computation, different from the names of metrics.
      metrics: Names, as in the config, of the metrics that receive intervals.
      at: Smallest probability of the decision 1.
      rates_at: The same for the rates of groups.
    """

    def __init__(self, name: str, metrics: list[str], at: float = AT, rates_at: float = AT) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            scores, select_bins = score_computations(eval_config, key_fields)

            def add_intervals(results: Results) -> dict[Any, Any]:
                interval = functools.partial(_compute_binary_interval, select_bins(results), at, rates_at)
                return _add_intervals(results, key_fields, metrics, interval)

            def plot(results: Results) -> dict[Any, Any]:
                key = tfma.metrics.PlotKey(name=compat.PREDICTIONS_PLOT, **key_fields)
                return {key: _plot_scores(select_bins(results), at)}

            return [*scores, *_make_diagnostics(name, key_fields, plot, add_intervals)]

        super().__init__(name, computations)


class RegressionDiagnostics(KeyedMetric):
    """Plots of the labels by prediction and of the residuals of a regression, and the intervals of its mean errors."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _diagnose_regression)


class RateDiagnostics(KeyedMetric):
    """The intervals of multiclass accuracies: the share of rows whose label is among the most probable classes.

    Args:
      name: Name of the computation, different from the names of metrics.
      metrics: Name of a metric in the config → number of classes; 0 for the plain accuracy.
    """

    def __init__(self, name: str, metrics: dict[str, int]) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            needed = {
                metric: make_weighted_sums(
                    f"hits_of_{metric}", eval_config, key_fields, functools.partial(_hits, classes)
                )
                for metric, classes in metrics.items()
            }

            def interval(results: Results, metric: str, value: float) -> Interval | None:
                _, select_sums = needed[metric]
                _, squares, rows = mean_and_squares(*(by_weight.total() for by_weight in select_sums(results)))
                return intervals.compute_weighted_rate_interval(value, squares, rows)

            def add_intervals(results: Results) -> dict[Any, Any]:
                return _add_intervals(results, key_fields, list(metrics), functools.partial(interval, results))

            counted = [computation for computations, _ in needed.values() for computation in computations]
            return [*counted, *_make_diagnostics(name, key_fields, None, add_intervals)]

        super().__init__(name, computations)


def _hits(classes: int, labels: Numbers, predictions: Numbers) -> Binned:
    # As in the metrics: of equally probable classes, the plain accuracy counts the first, other accuracies none.
    hit = predictions.argmax(axis=1) == labels if not classes else is_among_top(labels, predictions, classes)
    return in_one_bin(hit, hit)


def _make_diagnostics(
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


def _add_intervals(
    results: Results,
    key_fields: Mapping[str, Any],
    metrics: Sequence[str],
    interval: Callable[[str, float], Interval | None],
) -> dict[Any, Any]:
    """Return the metrics that were computed, with their intervals.

    Leave out metrics such as MeanMetric, which compute an interval themselves.
    """
    keys = {_key(name, key_fields): name for name in metrics}
    return {
        key: to_bounded_value(float(results[key]), interval(name, float(results[key])))
        for key, name in keys.items()
        if key in results and not is_bounded_value(results[key])
    }


def _compute_binary_interval(bins: ScoreBins, at: float, rates_at: float, metric: str, value: float) -> Interval | None:
    if metric in _SHARES:
        return _compute_share_interval(bins, rates_at if metric in RATES else at, metric, value)
    functions = {
        "auc": intervals.compute_auc_interval,
        "auc_precision_recall": intervals.compute_average_precision_interval,
        "binary_crossentropy": intervals.compute_crossentropy_interval,
        "calibration": intervals.compute_calibration_interval,
    }
    return functions[metric](value, bins) if metric in functions else None


_ROUNDING = 1e-9
"""Less than the distance of neighbouring float32, relative to the number."""
_Split = Callable[[Floats, Floats, npt.NDArray[np.bool_]], tuple[Floats, Floats]]
"""(rows with label 1, rows with label 0, whether the prediction is positive) → numerator and denominator of a share;
[bins]."""
_SHARES: dict[str, _Split] = {
    "binary_accuracy": lambda ones, zeros, positive: (np.where(positive, ones, zeros), ones + zeros),
    "positive_rate": lambda ones, zeros, positive: ((ones + zeros) * positive, ones + zeros),
    "recall": lambda ones, zeros, positive: (ones * positive, ones),
    "false_negative_rate": lambda ones, zeros, positive: (ones * ~positive, ones),
    "false_positive_rate": lambda ones, zeros, positive: (zeros * positive, zeros),
    "precision": lambda ones, zeros, positive: (ones * positive, (ones + zeros) * positive),
}


def _compute_share_interval(bins: ScoreBins, at: float, metric: str, value: float) -> Interval | None:
    # As in the metrics, the threshold is a float32. The mean of a bin of equal predictions may be lower by rounding.
    positive = bins.predictions >= float(np.float32(at)) * (1 - _ROUNDING) * bins.rows

    def totals(weighted: ScoreBins) -> tuple[float, tuple[float, float]]:
        hits, rows = _SHARES[metric](weighted.labels, weighted.rows - weighted.labels, positive)
        return float(rows.sum()), (float(hits.sum()), float(hits.sum()))

    rows, _ = total = totals(bins)
    if bins.by_squares is None:
        return intervals.compute_rate_interval(value, rows)
    _, squares, count = mean_and_squares(total, totals(bins.by_squares))
    return intervals.compute_weighted_rate_interval(value, squares, count)


def _plot_scores(bins: ScoreBins, at: float) -> Any:
    """Make a plot of rows by prediction.

    Bins are merged to about equal shares of both classes, so that a curve has enough points where the rows of the rarer
    class are. The threshold of the confusion matrix, `at`, always separates two merged bins.
    """
    classes = [rows for rows in (bins.labels, bins.rows - bins.labels) if rows.sum() > 0]
    if not classes:
        return protos.CalibrationHistogramBuckets()
    edges = np.stack(ordered_bins.edges_of(bins.bins), axis=1)
    return _plot(edges, bins, np.sum([rows / rows.sum() for rows in classes], axis=0), edges[:, 0] >= np.float32(at))


def _plot(
    edges: npt.NDArray[np.float64],
    bins: ScoreBins,
    weights: npt.NDArray[np.float64],
    part: npt.NDArray[np.bool_] | bool = False,
) -> protos.CalibrationHistogramBuckets:
    """Make TFMA's plot of bins, and merge neighbouring bins if there are too many.

    Args:
      edges: Lower and upper bounds of the bins; [bins, 2].
      bins: One or more bins.
      weights: Weights of the bins; merged bins have about equal weights; [bins].
      part: Parts of the bins; bins of different parts are not merged; [bins].
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
_PREDICTED, _RESIDUALS = (compat.private(f"{name}_of_regression") for name in ("predictions", "residuals"))


def _diagnose_regression(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
    predicted, residuals = _key(_PREDICTED, key_fields), _key(_RESIDUALS, key_fields)
    errors, select_sums = make_weighted_sums(_ERRORS, eval_config, key_fields, _errors)

    def interval(weighted: WeightedSums, metric: str, value: float) -> Interval | None:
        # The summands are the absolute errors and their second and fourth powers.
        first = 0 if metric == "mean_absolute_error" else 1
        (rows, sums), (squared_rows, squared_sums) = (by_weight.total() for by_weight in weighted)
        _, squares, count = mean_and_squares((rows, sums[first:]), (squared_rows, squared_sums[first:]))
        if metric == "root_mean_squared_error":
            ends = intervals.compute_mean_interval(value**2, squares, count)
            return (math.sqrt(ends[0]), math.sqrt(ends[1])) if ends else None
        return intervals.compute_mean_interval(value, squares, count)

    def add_intervals(results: Results) -> dict[Any, Any]:
        weighted = select_sums(results)
        if not weighted.sums.total()[0]:
            return {}
        names = ("mean_absolute_error", "mean_squared_error", "root_mean_squared_error")
        return _add_intervals(results, key_fields, names, functools.partial(interval, weighted))

    def plots(results: Results) -> dict[Any, Any]:
        sums_by_plot = {compat.PREDICTIONS_PLOT: results[predicted], RESIDUALS: results[residuals]}
        plots_by_name = {name: _plot_numbers(sums) for name, sums in sums_by_plot.items()}
        return {
            tfma.metrics.PlotKey(name=name, **key_fields): plot
            for name, plot in plots_by_name.items()
            if plot is not None
        }

    counted = [
        make_computation(key, eval_config, bins, identity)
        for key, bins in ((predicted, _by_prediction), (residuals, _by_residual))
    ]
    return [*errors, *counted, *_make_diagnostics(name, key_fields, plots, add_intervals)]


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
    """Return bins in the order of the numbers, with the labels and the numbers as summands.

    Rows whose residual is not finite are dropped.
    """
    counted = np.isfinite(residuals)
    values, labels = np.where(counted, values, 0.0), np.where(counted, labels, 0.0)
    return np.where(counted, assign_number_bins(values), DROPPED), np.stack([labels, values], axis=1)


def assign_number_bins(values: Floats) -> Ints:
    """Return the bins of finite numbers, which have a relative width of 0.001 and the order of the numbers."""
    sizes = np.abs(values)
    large = sizes >= _SMALLEST
    at = ((np.log(np.where(large, sizes, _SMALLEST)) - _LOG_SMALLEST) / _STEP).astype(np.int64) + 1
    return np.where(large, np.where(values > 0, at, -at), 0)


def number_bin_edges(bins: Ints) -> tuple[Floats, Floats]:
    """Return the lower and the upper bounds of bins of `assign_number_bins`."""
    near, far = (
        np.where(bins == 0, 0.0, np.exp(np.minimum(_LOG_SMALLEST + (np.abs(bins) - offset) * _STEP, _GREATEST)))
        for offset in (1, 0)
    )
    return np.where(bins < 0, -far, near), np.where(bins < 0, -near, far)


def _plot_numbers(sums: Sums) -> Any | None:
    """Make a plot of numbers counted by bin. Return None without rows."""
    # All rows of a bin may have weight 0.
    counted = (sums.bins != DROPPED) & (sums.rows > 0)
    if not counted.any():
        return None
    at = sums.bins[counted]
    bins = ScoreBins(sums.rows[counted], *sums.sums[counted].T)
    return _plot(np.stack(number_bin_edges(at), axis=1), bins, bins.rows)
