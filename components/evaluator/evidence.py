"""What makes a metric more than a number, measured along with it: how sure it is, and the plots of the task.

Both go into TFMA's own files: an interval stands beside its metric, a plot among the plots. TFMA's own way to
intervals, the jackknife, puts everything together twenty times over, so they are made of what one pass counts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import calibration_histogram, calibration_plot, metric_types, metric_util
from tensorflow_model_analysis.proto import metrics_for_slice_pb2 as protos

from components.evaluator import intervals
from components.evaluator.intervals import Cells, Interval
from components.evaluator.plots import AT

RESIDUALS = "residuals"
"""The plot of how many rows are how far off: label - prediction."""
PREDICTIONS = calibration_plot.CALIBRATION_PLOT_NAME
"""TFMA's name for the plot of labels by prediction; one of that name is told from others by having none in its key."""

_BUCKETS = 200
"""How many a plot has at most, in every slice."""
_FINE = calibration_histogram.DEFAULT_NUM_BUCKETS
_STEP, _SMALLEST = math.log(1.001), 1e-12
"""Numbers are counted in classes that are a thousandth wide, as a share of the number; what is smaller is 0."""
_LOG_SMALLEST, _GREATEST = math.log(_SMALLEST), 690.0
"""The logarithm of the smallest, and that of the greatest that is told apart."""

Found = Mapping[Any, Any]
"""TFMA's keys → what it has measured of a slice."""


class BinaryEvidence(tfma.metrics.Metric):  # type: ignore[misc]
    """Of a binary task, out of the histogram that its AUC needs anyway.

    Args:
      name: of the whole; nothing of that name comes out.
      metrics: those that are wanted with an interval, by the names of the config.
    """

    def __init__(self, name: str, metrics: list[str]) -> None:
        def computations(
            name: str,
            eval_config: tfma.EvalConfig | None = None,
            model_name: str = "",
            output_name: str = "",
            example_weighted: bool = False,
        ) -> list[Any]:
            named = {"model_name": model_name, "output_name": output_name, "example_weighted": example_weighted}
            counted = calibration_histogram.calibration_histogram(eval_config=eval_config, **named)
            histogram = counted[-1].keys[-1]

            def bounded(found: Found) -> dict[Any, Any]:
                cells = _cells(found[histogram])
                return _bounded(found, named, metrics, functools.partial(_of_binary, cells))

            def plot(found: Found) -> dict[Any, Any]:
                return {tfma.metrics.PlotKey(name=PREDICTIONS, **named): _of_histogram(found[histogram])}

            return [*counted, *_derived(name, named, plot, bounded)]

        super().__init__(tfma.metrics.merge_per_key_computations(computations), name=name)


class RegressionEvidence(tfma.metrics.Metric):  # type: ignore[misc]
    """Of a regression: labels by prediction, residuals, and the intervals of the mean errors."""

    def __init__(self, name: str) -> None:
        super().__init__(tfma.metrics.merge_per_key_computations(_of_regression), name=name)


class RateEvidence(tfma.metrics.Metric):  # type: ignore[misc]
    """The intervals of metrics that are a share of all rows.

    Args:
      name: of the whole; nothing of that name comes out.
      metrics: they, by the names of the config.
      rows: the name of the metric that counts the rows.
    """

    def __init__(self, name: str, metrics: list[str], rows: str) -> None:
        def computations(
            name: str, model_name: str = "", output_name: str = "", example_weighted: bool = False
        ) -> list[Any]:
            named = {"model_name": model_name, "output_name": output_name, "example_weighted": example_weighted}

            def bounded(found: Found) -> dict[Any, Any]:
                count = next(float(value) for key, value in found.items() if key.name == rows)
                return _bounded(found, named, metrics, lambda _, value: intervals.of_rate(value, count))

            return _derived(name, named, None, bounded)

        super().__init__(tfma.metrics.merge_per_key_computations(computations), name=name)


def bounded(value: float, interval: Interval | None) -> Any:
    """A value with its interval in TFMA's form, or alone if there is none."""
    if interval is None or not all(map(math.isfinite, interval)):
        return value
    low, high = interval
    return protos.BoundedValue(value={"value": value}, lower_bound={"value": low}, upper_bound={"value": high})


def _derived(
    name: str,
    named: Mapping[str, Any],
    plot: Callable[[Found], dict[Any, Any]] | None,
    bounds: Callable[[Found], dict[Any, Any]],
) -> list[Any]:
    """A plot, and intervals: after all else, TFMA's differences to a baseline too, which are made of plain numbers."""
    plots = [] if plot is None else [tfma.metrics.DerivedMetricComputation([_key(f"{name} plot", named)], plot)]
    return [*plots, metric_types.CIDerivedMetricComputation([_key(name, named)], bounds)]


def _key(name: str, named: Mapping[str, Any]) -> Any:
    return tfma.metrics.MetricKey(name=name, **named)


def _bounded(
    found: Found,
    named: Mapping[str, Any],
    metrics: Sequence[str],
    interval: Callable[[str, float], Interval | None],
) -> dict[Any, Any]:
    """The metrics that were found, with their intervals."""
    keys = {_key(name, named): name for name in metrics}
    return {
        key: bounded(float(found[key]), interval(name, float(found[key]))) for key, name in keys.items() if key in found
    }


def _of_binary(cells: Cells, metric: str, value: float) -> Interval | None:
    rows, positives = cells.rows.sum(), cells.labels.sum()
    trials = {
        "binary_accuracy": rows,
        "positive_rate": rows,
        "recall": positives,
        "false_negative_rate": positives,
        "false_positive_rate": rows - positives,
        "precision": cells.rows[cells.predictions >= AT * cells.rows].sum(),
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
    return others[metric](value, cells) if metric in others else None


def _cells(histogram: Sequence[Any]) -> Cells:
    """The buckets of TFMA's histogram that are not empty."""
    some = [each for each in histogram if each.weighted_examples > 0]
    sums = (
        np.array([getattr(each, name) for each in some])
        for name in ("weighted_examples", "weighted_labels", "weighted_predictions")
    )
    return Cells(*sums)


def _of_histogram(histogram: Sequence[Any]) -> Any:
    """TFMA's histogram as a plot.

    Buckets are put together so that each has about as many rows of both classes: a curve has its points where the few
    of the rarer class are. None goes over the threshold of a confusion matrix.
    """
    cells = _cells(histogram)
    at = np.array([each.bucket_id for each in histogram if each.weighted_examples > 0])
    # What lies below 0, or is 1, has a bucket of its own.
    edges = np.stack([at - 1, at], axis=1).clip(0, _FINE) / _FINE
    classes = [each for each in (cells.labels, cells.rows - cells.labels) if each.sum() > 0]
    if not classes:
        return protos.CalibrationHistogramBuckets()
    return _plot(edges, cells, sum(each / each.sum() for each in classes), edges[:, 0] >= AT)


def _plot(edges: Any, cells: Cells, weights: Any, part: Any = False) -> Any:
    """Cells as TFMA's plot; neighbours are put together where they are more than it may have.

    Args:
      edges: from where to where each goes, [cells, 2].
      cells: at least one.
      weights: how much each counts when they are put together to about equal ones, [cells].
      part: False or True for each, [cells]; none of one are put together with those of the other.
    """
    before = np.cumsum(weights) - weights
    group = (before * ((_BUCKETS - 1) / weights.sum())).astype(int) + part * _BUCKETS
    starts = np.flatnonzero(np.diff(group, prepend=-1)).tolist()
    made = protos.CalibrationHistogramBuckets()
    for start, stop in zip(starts, [*starts[1:], len(edges)], strict=True):
        rows, labels, predictions = (
            float(sums[start:stop].sum()) for sums in (cells.rows, cells.labels, cells.predictions)
        )
        made.buckets.add(
            lower_threshold_inclusive=edges[start, 0],
            upper_threshold_exclusive=edges[stop - 1, 1],
            num_weighted_examples={"value": rows},
            total_weighted_label={"value": labels},
            total_weighted_refined_prediction={"value": predictions},
        )
    return made


@dataclass
class _Errors:
    """What is kept of the rows of a regression.

    Attributes:
      rows: how many, weighted.
      powers: the sums of |label - prediction|, its square and its fourth power.
      predictions: class → rows, sum of labels, sum of predictions.
      residuals: class → rows, 0, sum of residuals.
    """

    rows: float = 0.0
    powers: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    predictions: dict[int, list[float]] = field(default_factory=dict)
    residuals: dict[int, list[float]] = field(default_factory=dict)


class _Regression(beam.CombineFn):  # type: ignore[misc]
    """Adds up what is told of a regression."""

    def __init__(self, eval_config: tfma.EvalConfig | None, named: dict[str, Any]) -> None:
        self._eval_config, self._named = eval_config, named

    def create_accumulator(self) -> _Errors:
        return _Errors()

    def add_input(self, errors: _Errors, element: Any) -> _Errors:
        read = metric_util.to_label_prediction_example_weight(
            element, eval_config=self._eval_config, flatten=False, **self._named
        )
        for labels, predictions, weights in read:
            weight = float(np.ravel(weights)[0])
            for label, prediction in zip(np.ravel(labels).tolist(), np.ravel(predictions).tolist(), strict=True):
                _count(errors, label, prediction, weight)
        return errors

    def merge_accumulators(self, several: Iterable[_Errors]) -> _Errors:
        merged = _Errors()
        for errors in several:
            merged.rows += errors.rows
            merged.powers = [one + other for one, other in zip(merged.powers, errors.powers, strict=True)]
            for into, some in ((merged.predictions, errors.predictions), (merged.residuals, errors.residuals)):
                for at, sums in some.items():
                    _add(into, at, sums)
        return merged

    def extract_output(self, errors: _Errors) -> dict[Any, _Errors]:
        return {_key(_ERRORS, self._named): errors}


_ERRORS = "_errors_of_regression"
"""A name that begins so is private: TFMA writes it nowhere."""


def _of_regression(
    name: str,
    eval_config: tfma.EvalConfig | None = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> list[Any]:
    named = {"model_name": model_name, "output_name": output_name, "example_weighted": example_weighted}
    key = _key(_ERRORS, named)

    def interval(errors: _Errors, metric: str, value: float) -> Interval | None:
        squares = errors.powers[1 if metric == "mean_absolute_error" else 2]
        return intervals.of_mean(value, squares / errors.rows, errors.rows) if errors.rows else None

    def bounded(found: Found) -> dict[Any, Any]:
        of = functools.partial(interval, found[key])
        return _bounded(found, named, ("mean_absolute_error", "mean_squared_error"), of)

    def plots(found: Found) -> dict[Any, Any]:
        kept = {PREDICTIONS: found[key].predictions, RESIDUALS: found[key].residuals}
        return {
            tfma.metrics.PlotKey(name=each, **named): _of_classes(classes) for each, classes in kept.items() if classes
        }

    counted = tfma.metrics.MetricComputation([key], None, _Regression(eval_config, named))
    return [counted, *_derived(name, named, plots, bounded)]


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
    """Where a number is counted; the classes have its order."""
    size = abs(value)
    if size < _SMALLEST:
        return 0
    at = int((math.log(size) - _LOG_SMALLEST) / _STEP) + 1
    return at if value > 0 else -at


def _add(into: dict[int, list[float]], at: int, sums: Sequence[float]) -> None:
    kept = into.setdefault(at, [0.0, 0.0, 0.0])
    for place, each in enumerate(sums):
        kept[place] += each


def _of_classes(classes: Mapping[int, Sequence[float]]) -> Any:
    """Numbers by class as a plot."""
    at = np.array(sorted(classes))
    cells = Cells(*np.array([classes[each] for each in at.tolist()]).T)
    near, far = (
        np.where(at == 0, 0.0, np.exp(np.minimum(_LOG_SMALLEST + (np.abs(at) - less) * _STEP, _GREATEST)))
        for less in (1, 0)
    )
    edges = np.where((at < 0)[:, None], np.stack([-far, -near], axis=1), np.stack([near, far], axis=1))
    return _plot(edges, cells, cells.rows)
