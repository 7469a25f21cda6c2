"""Reads what TFMA has written about a model and its baseline: each metric of all rows and per slice, and the plots."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow_model_analysis as tfma

from components.evaluator.evidence import RESIDUALS
from components.evaluator.plots import Bucket, Confusion, Drawn, Plots
from components.evaluator.verdict import Measured
from components.section import Task

ROWS = "example_count"
"""TFMA's name for the number of rows."""

_CLASSES = 20
"""How many a confusion matrix tells apart; the rest are one."""


def read(folder: str) -> list[Measured]:
    """All slices of an evaluation, the whole split among them; values may be NaN.

    Args:
      folder: of a ModelEvaluation artifact.
    """
    found = []
    for record in tfma.load_metrics(folder):
        metrics: dict[str, float] = {}
        baseline: dict[str, float] = {}
        intervals: dict[str, tuple[float, float]] = {}
        for each in record.metric_keys_and_values:
            value = _scalar(each.value)
            if value is None or each.key.is_diff:
                continue
            name = _name(each.key)
            if each.key.model_name == tfma.BASELINE_KEY:
                baseline[name] = value
                continue
            metrics[name] = value
            interval = _interval(each)
            if interval is not None:
                intervals[name] = interval
        rows = int(metrics.pop(ROWS, 0))
        for others in (baseline, intervals):
            others.pop(ROWS, None)
        found.append(Measured(_slice(record.slice_key), rows, metrics, baseline, intervals))
    return found


def plots(folder: str, task: Task) -> Plots:
    """The plots of the whole split.

    Args:
      folder: of a ModelEvaluation artifact.
      task: what is predicted.
    """
    told = [
        each
        for record in tfma.load_plots(folder)
        if not record.slice_key.single_slice_keys
        for each in record.plot_keys_and_values
    ]
    matrices = {baseline: _matrix(told, baseline) for baseline in (False, True)}
    ours, others = (_by_rows(matrices[baseline]) for baseline in (False, True))
    # A class may have another number in another model; then it is not the same rows that have it.
    alike = all(ours.get(each, 0.0) == others.get(each, 0.0) for each in {*ours, *others})
    order = [*ours, *(each for each in others if alike and each not in ours)]
    candidate = _drawn(told, False, matrices[False], order)
    baseline = _drawn(told, True, matrices[True] if alike else {}, order)
    return Plots(task, candidate, None if baseline == Drawn() else baseline)


def _name(key: Any) -> str:
    """A metric's name, with what tells it from its sisters in a model of several outputs or classes."""
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
    return value.decode(errors="replace") if isinstance(value, bytes) else f"{value:g}"


def _scalar(value: Any) -> float | None:
    kind = value.WhichOneof("type")
    if kind == "double_value":
        return float(value.double_value.value)
    if kind == "bounded_value":
        return float(value.bounded_value.value.value)
    return None


def _interval(told: Any) -> tuple[float, float] | None:
    """Of a metric; None where there is none, or none of two numbers."""
    ends = [_scalar(each) for each in (told.confidence_interval.lower_bound, told.confidence_interval.upper_bound)]
    if told.value.WhichOneof("type") == "bounded_value":
        ends = [told.value.bounded_value.lower_bound.value, told.value.bounded_value.upper_bound.value]
    low, high = ends
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    return low, high


def _drawn(told: Iterable[Any], baseline: bool, matrix: Matrix, order: Sequence[int]) -> Drawn:
    buckets: dict[bool, tuple[Bucket, ...]] = {}
    for each in _of(told, baseline):
        if each.value.HasField("calibration_histogram_buckets"):
            several = map(_bucket, each.value.calibration_histogram_buckets.buckets)
            buckets[each.key.name == RESIDUALS] = tuple(bucket for bucket in several if _finite(bucket))
    return Drawn(buckets.get(False, ()), buckets.get(True, ()), _confusion(matrix, order) if matrix else None)


def _of(told: Iterable[Any], baseline: bool) -> Iterable[Any]:
    return (each for each in told if (each.key.model_name == tfma.BASELINE_KEY) is baseline)


def _bucket(told: Any) -> Bucket:
    return Bucket(
        told.lower_threshold_inclusive,
        told.upper_threshold_exclusive,
        told.num_weighted_examples.value,
        told.total_weighted_label.value,
        told.total_weighted_refined_prediction.value,
    )


def _finite(bucket: Bucket) -> bool:
    """Sums of very large numbers may be too large for any; they can be neither drawn nor written."""
    return math.isfinite(bucket.labels) and math.isfinite(bucket.predictions)


Matrix = dict[tuple[int, int], float]
"""Label, predicted class → rows."""


def _matrix(told: Iterable[Any], baseline: bool) -> Matrix:
    return {
        (entry.actual_class_id, entry.predicted_class_id): entry.num_weighted_examples
        for each in _of(told, baseline)
        for matrix in each.value.multi_class_confusion_matrix_at_thresholds.matrices[:1]
        for entry in matrix.entries
    }


def _by_rows(matrix: Matrix) -> dict[int, float]:
    """Class → rows that have it as their label; all classes of a matrix, those with the most rows first."""
    rows: defaultdict[int, float] = defaultdict(float)
    for (label, prediction), count in matrix.items():
        rows[label] += count
        rows[prediction] += 0
    return dict(sorted(rows.items(), key=lambda each: (-each[1], each[0])))


def _confusion(matrix: Matrix, order: Sequence[int]) -> Confusion:
    """The matrix of the most frequent classes by their number; all others together come last."""
    several = sorted(order[:_CLASSES])
    others = len(order) - len(several)
    place = {each: at for at, each in enumerate(several)}
    size = len(several) + (1 if others else 0)
    counts = [[0.0] * size for _ in range(size)]
    for (label, prediction), count in matrix.items():
        counts[place.get(label, size - 1)][place.get(prediction, size - 1)] += count
    return Confusion(tuple(several), others, tuple(map(tuple, counts)))
