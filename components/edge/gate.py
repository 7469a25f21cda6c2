"""The gate of a variant: the config's bounds of what it loses against the full model, of its size and its latency."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn import metrics

from components.bounds import FLOAT32_EPSILON, is_at_least, is_at_most
from components.config_section import Task
from components.edge.config import VariantConfig
from components.edge.verdict import Latency, Student, VariantResult

Array: TypeAlias = "npt.NDArray[Any]"


@dataclass(frozen=True)
class Rows:
    """The rows on which variants are compared.

    Attributes:
      task: the task.
      labels: 0 or 1, the number of the class, or a number; [rows].
      weights: [rows].
      predictions: the full model's; probabilities, [rows] or [rows, classes], or numbers, [rows].
    """

    task: Task
    labels: Array
    weights: Array
    predictions: Array

    @property
    def metric_name(self) -> str:
        """The metric of the task."""
        return {"binary": "auc", "multiclass": "accuracy", "regression": "r2"}[self.task]

    def metric(self, predictions: Array) -> float:
        """Returns the metric of predictions that have the form of `predictions`; greater is better.

        It is NaN if all labels are equal, but for an accuracy.
        """
        if self.task != "multiclass" and np.ptp(self.labels) == 0:
            return math.nan
        return float(_METRICS[self.task](self.labels, predictions, sample_weight=self.weights))

    def differences(self, predictions: Array) -> Array:
        """Returns how far each row's prediction is from the full model's, [rows].

        Of several classes the greatest difference counts; a regression's unit is the label's standard deviation.
        """
        moved = np.abs(predictions.astype("f8") - self.predictions)
        if self.task == "regression":
            return moved / (np.std(self.labels) or 1.0)
        return moved.max(axis=1) if moved.ndim == 2 else moved


def judge(
    variant: VariantConfig,
    rows: Rows,
    content: bytes,
    predictions: Array,
    latencies: Sequence[Latency],
    student: Student | None = None,
) -> VariantResult:
    """Holds a variant against its bounds.

    Args:
      variant: the bounds.
      rows: the rows, with the full model's predictions.
      content: the file.
      predictions: its predictions of these rows.
      latencies: as measured.
      student: if it is one.
    """
    if not np.isfinite(predictions).all():
        return VariantResult(variant.name, ("expected finite predictions, received others",), len(content))
    metric, differences = rows.metric(predictions), rows.differences(predictions)
    measured = VariantResult(
        name=variant.name,
        why=(),
        bytes=len(content),
        gzip_bytes=len(gzip.compress(content, mtime=0)),
        metric=finite(metric),
        mean_difference=float(np.average(differences, weights=rows.weights)),
        max_difference=float(differences.max()),
        latencies=tuple(latencies),
        student=student,
    )
    drop = rows.metric(rows.predictions) - metric
    return replace(measured, why=tuple(_failures(variant, measured, rows.metric_name, drop)))


def _failures(variant: VariantConfig, measured: VariantResult, metric: str, drop: float) -> Iterator[str]:
    bounds = (
        (f"drop of {metric}", variant.max_metric_drop, drop),
        ("mean difference", variant.max_mean_difference, measured.mean_difference),
        ("greatest difference", variant.max_difference, measured.max_difference),
        ("kilobytes", variant.max_kilobytes, None if measured.bytes is None else measured.bytes / 1000),
        ("p99 in ms", variant.max_p99_ms, measured.latencies[0].p99_ms if measured.latencies else None),
    )
    for name, bound, value in bounds:
        # A metric that cannot be computed, such as AUC of one class, is NaN and does not count.
        if bound is None or value is None or math.isnan(value):
            continue
        # The values are differences of float32 predictions and of metrics, which are about 1.
        if not is_at_most(value, bound, 1.0, epsilon=FLOAT32_EPSILON):
            yield f"{name}: expected at most {bound:g}, received {value:.4g}"
    if variant.min_gain is not None and measured.student:
        gain = mean(measured.student.taught) - mean(measured.student.alone)
        if not math.isnan(gain) and not is_at_least(gain, variant.min_gain, 1.0, epsilon=FLOAT32_EPSILON):
            yield f"gain over the student alone: expected at least {variant.min_gain:g}, received {gain:.4g}"


def mean(values: Sequence[float | None]) -> float:
    """Returns the mean of metrics; NaN if one cannot be computed."""
    return float(np.mean([math.nan if each is None else each for each in values]))


def finite(metric: float) -> float | None:
    """Returns a metric; None if it cannot be computed."""
    return metric if math.isfinite(metric) else None


def _accuracy(labels: Array, probabilities: Array, sample_weight: Array) -> float:
    return float(metrics.accuracy_score(labels, probabilities.argmax(axis=1), sample_weight=sample_weight))


_METRICS: dict[Task, Callable[..., float]] = {
    "binary": metrics.roc_auc_score,
    "multiclass": _accuracy,
    "regression": metrics.r2_score,
}
