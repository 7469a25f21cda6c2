"""Reads TFMA's results for a model and its baseline: metrics by slice, and plots."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow_model_analysis as tfma

from components.base.config_section import Task
from components.data.decimals import number_text
from components.evaluator import constant
from components.evaluator.plot_data import Bucket, Confusion, ModelPlots, Plots
from components.evaluator.plot_metrics import RESIDUALS
from components.evaluator.verdict import ConstantMetric, SliceMetrics

ROWS = "example_count"
"""TFMA's name for the number of rows."""

_UNKNOWN = ConstantMetric(math.nan)
_CLASSES = 20
"""Greatest number of classes of a confusion matrix; the others are summed."""


def read(folder: str) -> list[SliceMetrics]:
    """Read the metrics of all slices, including the whole split; values may be NaN.

    Args:
      folder: the folder of a ModelEvaluation artifact.
    """
    slices = []
    for record in tfma.load_metrics(folder):
        metrics: dict[str, float] = {}
        baseline: dict[str, float] = {}
        intervals: dict[str, tuple[float, float]] = {}
        constants: dict[str, ConstantMetric] = {}
        for each in record.metric_keys_and_values:
            value = _scalar(each.value)
            if value is None or each.key.is_diff:
                continue
            name = _name(each.key)
            of_constant = name.startswith((constant.VALUE, constant.GAIN))
            if each.key.model_name == tfma.BASELINE_KEY:
                if not of_constant:
                    baseline[name] = value
                continue
            if of_constant:
                _add_constant(constants, name, value, _interval(each))
                continue
            metrics[name] = value
            interval = _interval(each)
            if interval is not None:
                intervals[name] = interval
        rows = int(metrics.pop(ROWS, 0))
        for others in (baseline, intervals):
            others.pop(ROWS, None)
        slices.append(SliceMetrics(_slice(record.slice_key), rows, metrics, baseline, intervals, constants))
    return slices


def _add_constant(
    constants: dict[str, ConstantMetric], name: str, value: float, interval: tuple[float, float] | None
) -> None:
    """Add the value of a constant prediction, or the gain over it."""
    if name.startswith(constant.VALUE):
        metric = name.removeprefix(constant.VALUE)
        constants[metric] = replace(constants.get(metric, _UNKNOWN), value=value)
    else:
        metric = name.removeprefix(constant.GAIN)
        constants[metric] = replace(constants.get(metric, _UNKNOWN), gain=value, interval=interval)


def plots(folder: str, task: Task) -> Plots:
    """Read the plots of the whole split.

    Args:
      folder: the folder of a ModelEvaluation artifact.
      task: the task.
    """
    records = [
        each
        for record in tfma.load_plots(folder)
        if not record.slice_key.single_slice_keys
        for each in record.plot_keys_and_values
    ]
    matrices = {baseline: _matrix(records, baseline) for baseline in (False, True)}
    candidate_rows, baseline_rows = (_by_rows(matrices[baseline]) for baseline in (False, True))
    # A class may have another number in the baseline; then its row count differs, and the matrices are not comparable.
    alike = all(
        candidate_rows.get(each, 0.0) == baseline_rows.get(each, 0.0) for each in {*candidate_rows, *baseline_rows}
    )
    order = [*candidate_rows, *(each for each in baseline_rows if alike and each not in candidate_rows)]
    candidate = _model_plots(records, False, matrices[False], order)
    baseline = _model_plots(records, True, matrices[True] if alike else {}, order)
    return Plots(task, candidate, None if baseline == ModelPlots() else baseline)


def _name(key: Any) -> str:
    """Return a metric's name, with output and class for a model of several outputs or classes."""
    parts = [key.output_name, key.name]
    if key.HasField("sub_key"):
        sub = key.sub_key
        parts += [f"{field.name} {value.value}" for field, value in sub.ListFields() if hasattr(value, "value")]
    return " ".join(part for part in parts if part)


def _slice(key: Any) -> dict[str, str]:
    return {each.column: _slice_value(each) for each in key.single_slice_keys}


def _slice_value(key: Any) -> str:
    kind = key.WhichOneof("kind")
    value = getattr(key, kind)
    return value.decode(errors="replace") if isinstance(value, bytes) else number_text(value)


def _scalar(value: Any) -> float | None:
    kind = value.WhichOneof("type")
    if kind == "double_value":
        return float(value.double_value.value)
    if kind == "bounded_value":
        return float(value.bounded_value.value.value)
    return None


def _interval(metric: Any) -> tuple[float, float] | None:
    """Return the interval of a metric; None without one, or if a bound is not finite."""
    ends = [_scalar(each) for each in (metric.confidence_interval.lower_bound, metric.confidence_interval.upper_bound)]
    if metric.value.WhichOneof("type") == "bounded_value":
        ends = [metric.value.bounded_value.lower_bound.value, metric.value.bounded_value.upper_bound.value]
    low, high = ends
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    return low, high


def _model_plots(records: Iterable[Any], baseline: bool, matrix: Matrix, order: Sequence[int]) -> ModelPlots:
    buckets: dict[bool, tuple[Bucket, ...]] = {}
    for each in _of_model(records, baseline):
        if each.value.HasField("calibration_histogram_buckets"):
            parsed = map(_bucket, each.value.calibration_histogram_buckets.buckets)
            buckets[each.key.name == RESIDUALS] = tuple(bucket for bucket in parsed if _finite(bucket))
    return ModelPlots(buckets.get(False, ()), buckets.get(True, ()), _confusion(matrix, order) if matrix else None)


def _of_model(records: Iterable[Any], baseline: bool) -> Iterable[Any]:
    return (each for each in records if (each.key.model_name == tfma.BASELINE_KEY) is baseline)


def _bucket(message: Any) -> Bucket:
    return Bucket(
        message.lower_threshold_inclusive,
        message.upper_threshold_exclusive,
        message.num_weighted_examples.value,
        message.total_weighted_label.value,
        message.total_weighted_refined_prediction.value,
    )


def _finite(bucket: Bucket) -> bool:
    """Whether the sums are finite: sums of very large numbers may overflow, and JSON cannot represent infinity."""
    return math.isfinite(bucket.labels) and math.isfinite(bucket.predictions)


Matrix = dict[tuple[int, int], float]
"""(label, predicted class) → rows."""


def _matrix(records: Iterable[Any], baseline: bool) -> Matrix:
    return {
        (entry.actual_class_id, entry.predicted_class_id): entry.num_weighted_examples
        for each in _of_model(records, baseline)
        for matrix in each.value.multi_class_confusion_matrix_at_thresholds.matrices[:1]
        for entry in matrix.entries
    }


def _by_rows(matrix: Matrix) -> dict[int, float]:
    """Return class → rows with this label, for all classes of a matrix, those with the most rows first."""
    rows: defaultdict[int, float] = defaultdict(float)
    for (label, prediction), count in matrix.items():
        rows[label] += count
        rows[prediction] += 0
    return dict(sorted(rows.items(), key=lambda each: (-each[1], each[0])))


def _confusion(matrix: Matrix, order: Sequence[int]) -> Confusion:
    """Make the matrix of the most frequent classes in ascending order; the sum of all others is last."""
    classes = sorted(order[:_CLASSES])
    others = len(order) - len(classes)
    index = {each: at for at, each in enumerate(classes)}
    size = len(classes) + (1 if others else 0)
    counts = [[0.0] * size for _ in range(size)]
    for (label, prediction), count in matrix.items():
        counts[index.get(label, size - 1)][index.get(prediction, size - 1)] += count
    return Confusion(tuple(classes), others, tuple(map(tuple, counts)))
