"""Read TFMA's results for a model and its baseline: metrics by slice, and plots."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow_model_analysis as tfma

from components.base.config_section import Task
from components.data.decimals import number_text
from components.evaluator import constant
from components.evaluator.plot_data import AT, Bucket, Confusion, ModelPlots, Plots
from components.evaluator.plot_metrics import RESIDUALS
from components.evaluator.verdict import ConstantMetric, SliceMetrics

ROWS = "example_count"
"""TFMA's name for the number of rows."""

_UNKNOWN = ConstantMetric(math.nan)
_CLASSES = 20
"""Maximum number of classes of a confusion matrix; further classes are added up."""


def read(folder: str) -> list[SliceMetrics]:
    """Read the metrics of all slices, including the whole split; values may be NaN.

    Args:
      folder: Folder of a ModelEvaluation artifact.
    """
    slices = []
    for record in tfma.load_metrics(folder):
        metrics: dict[str, float] = {}
        baseline: dict[str, float] = {}
        intervals: dict[str, tuple[float, float]] = {}
        constants: dict[str, ConstantMetric] = {}
        for metric in record.metric_keys_and_values:
            value = _scalar(metric.value)
            if value is None or metric.key.is_diff:
                continue
            name = _name(metric.key)
            is_constant = name.startswith((constant.VALUE, constant.GAIN))
            if metric.key.model_name == tfma.BASELINE_KEY:
                if not is_constant:
                    baseline[name] = value
                continue
            if is_constant:
                _add_constant(constants, name, value, _interval(metric))
                continue
            metrics[name] = value
            interval = _interval(metric)
            if interval is not None:
                intervals[name] = interval
        rows = int(metrics.pop(ROWS, 0))
        baseline.pop(ROWS, None)
        intervals.pop(ROWS, None)
        slices.append(SliceMetrics(_slice(record.slice_key), rows, metrics, baseline, intervals, constants))
    return slices


def _add_constant(
    constants: dict[str, ConstantMetric], name: str, value: float, interval: tuple[float, float] | None
) -> None:
    """Add the value of the constant prediction, or the model's gain over it."""
    if name.startswith(constant.VALUE):
        metric = name.removeprefix(constant.VALUE)
        constants[metric] = replace(constants.get(metric, _UNKNOWN), value=value)
    else:
        metric = name.removeprefix(constant.GAIN)
        constants[metric] = replace(constants.get(metric, _UNKNOWN), gain=value, interval=interval)


def plots(folder: str, task: Task, thresholds: Mapping[bool, float] | None = None) -> Plots:
    """Read the plots of the whole split.

    Args:
      folder: Folder of a ModelEvaluation artifact.
      task: The task.
      thresholds: Whether a model is the baseline → the smallest probability of its decision 1. By default, 0.5.
    """
    records = [
        plot
        for record in tfma.load_plots(folder)
        if not record.slice_key.single_slice_keys
        for plot in record.plot_keys_and_values
    ]
    matrices = {baseline: _matrix(records, baseline) for baseline in (False, True)}
    candidate_rows, baseline_rows = (_count_labels(matrices[baseline]) for baseline in (False, True))
    # If the models number their classes differently, row counts differ and the matrices are not comparable.
    is_comparable = all(
        candidate_rows.get(label, 0.0) == baseline_rows.get(label, 0.0) for label in {*candidate_rows, *baseline_rows}
    )
    order = [*candidate_rows, *(label for label in baseline_rows if is_comparable and label not in candidate_rows)]
    candidate = _model_plots(records, False, matrices[False], order)
    baseline = _model_plots(records, True, matrices[True] if is_comparable else {}, order)
    has_baseline = baseline != ModelPlots()
    candidate, baseline = (
        replace(model, at=(thresholds or {}).get(is_baseline, AT))
        for is_baseline, model in ((False, candidate), (True, baseline))
    )
    return Plots(task, candidate, baseline if has_baseline else None)


def _name(key: Any) -> str:
    """Return the name of a metric, with output and class if the model has several."""
    parts = [key.output_name, key.name]
    if key.HasField("sub_key"):
        sub = key.sub_key
        parts += [f"{field.name} {value.value}" for field, value in sub.ListFields() if hasattr(value, "value")]
    return " ".join(part for part in parts if part)


def _slice(key: Any) -> dict[str, str]:
    return {part.column: _slice_value(part) for part in key.single_slice_keys}


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
    """Return the interval of a metric; None if it is missing or not finite."""
    ends = [_scalar(metric.confidence_interval.lower_bound), _scalar(metric.confidence_interval.upper_bound)]
    if metric.value.WhichOneof("type") == "bounded_value":
        ends = [metric.value.bounded_value.lower_bound.value, metric.value.bounded_value.upper_bound.value]
    low, high = ends
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    return low, high


def _model_plots(records: Iterable[Any], baseline: bool, matrix: Matrix, order: Sequence[int]) -> ModelPlots:
    buckets: dict[bool, tuple[Bucket, ...]] = {}
    for record in _select_model(records, baseline):
        if record.value.HasField("calibration_histogram_buckets"):
            parsed = map(_bucket, record.value.calibration_histogram_buckets.buckets)
            buckets[record.key.name == RESIDUALS] = tuple(bucket for bucket in parsed if _is_finite(bucket))
    return ModelPlots(buckets.get(False, ()), buckets.get(True, ()), _confusion(matrix, order) if matrix else None)


def _select_model(records: Iterable[Any], baseline: bool) -> Iterable[Any]:
    return (record for record in records if (record.key.model_name == tfma.BASELINE_KEY) is baseline)


def _bucket(message: Any) -> Bucket:
    return Bucket(
        message.lower_threshold_inclusive,
        message.upper_threshold_exclusive,
        message.num_weighted_examples.value,
        message.total_weighted_label.value,
        message.total_weighted_refined_prediction.value,
    )


def _is_finite(bucket: Bucket) -> bool:
    """Whether the sums are finite; sums of very large numbers may overflow, and JSON cannot represent infinity."""
    return math.isfinite(bucket.labels) and math.isfinite(bucket.predictions)


Matrix = dict[tuple[int, int], float]
"""(label, predicted class) → rows."""


def _matrix(records: Iterable[Any], baseline: bool) -> Matrix:
    return {
        (entry.actual_class_id, entry.predicted_class_id): entry.num_weighted_examples
        for record in _select_model(records, baseline)
        for matrix in record.value.multi_class_confusion_matrix_at_thresholds.matrices[:1]
        for entry in matrix.entries
    }


def _count_labels(matrix: Matrix) -> dict[int, float]:
    """Return class → rows with this label, for all classes of a matrix, in descending order of rows."""
    rows: defaultdict[int, float] = defaultdict(float)
    for (label, prediction), count in matrix.items():
        rows[label] += count
        rows[prediction] += 0
    return dict(sorted(rows.items(), key=lambda item: (-item[1], item[0])))


def _confusion(matrix: Matrix, order: Sequence[int]) -> Confusion:
    """Make the matrix of the most frequent classes in ascending order; the last row and column add up the rest."""
    classes = sorted(order[:_CLASSES])
    rare_count = len(order) - len(classes)
    index = {label: at for at, label in enumerate(classes)}
    size = len(classes) + (1 if rare_count else 0)
    counts = [[0.0] * size for _ in range(size)]
    for (label, prediction), count in matrix.items():
        counts[index.get(label, size - 1)][index.get(prediction, size - 1)] += count
    return Confusion(tuple(classes), rare_count, tuple(map(tuple, counts)))
