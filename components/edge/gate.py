"""Check a variant against its bounds on quality, size and latency."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn import metrics

from components.base.bounds import FLOAT32_EPSILON, is_at_least, is_at_most
from components.base.config_section import Task
from components.edge.config import VariantConfig
from components.edge.verdict import DeviceResult, Latency, Student, VariantResult

Array: TypeAlias = "npt.NDArray[Any]"


@dataclass(frozen=True)
class Rows:
    """The rows on which variants are compared with the full model.

    Attributes:
      task: Task of the model.
      labels: Labels, float64: 0 or 1 (binary), the index of the class (multiclass), or a number (regression); [rows].
      weights: Weights of the rows, float64; [rows].
      predictions: Predictions of the full model: probabilities, [rows] or [rows, classes]; or numbers, [rows].
    """

    task: Task
    labels: Array
    weights: Array
    predictions: Array

    @property
    def metric_name(self) -> str:
        """Name of the task's metric."""
        return {"binary": "auc", "multiclass": "accuracy", "regression": "r2"}[self.task]

    def head(self, count: int) -> Rows:
        """Return the first rows."""
        parts = (self.labels[:count], self.weights[:count], self.predictions[:count])
        return Rows(self.task, *parts)

    def metric(self, predictions: Array) -> float:
        """Compute the task's metric; greater is better. AUC and R² are NaN if all labels are equal.

        Args:
          predictions: Predictions of the rows, with the same shape as the attribute `predictions`.
        """
        if self.task != "multiclass" and np.ptp(self.labels) == 0:
            return math.nan
        return float(_METRICS[self.task](self.labels, predictions, sample_weight=self.weights))

    def differences(self, predictions: Array) -> Array:
        """Compute the absolute difference between predictions and the full model's predictions; [rows].

        For several classes, it is the maximum of the classes. For a regression, it is in standard deviations of the
        label.
        """
        differences = np.abs(predictions.astype("f8") - self.predictions)
        if self.task == "regression":
            return differences / (np.std(self.labels) or 1.0)
        return differences.max(axis=1) if differences.ndim == 2 else differences


def judge(
    variant: VariantConfig,
    rows: Rows,
    content: bytes,
    predictions: Array,
    latencies: Sequence[Latency],
    student: Student | None = None,
    device: DeviceResult | None = None,
) -> VariantResult:
    """Check a variant against its bounds.

    Args:
      variant: Settings of the variant, which include the bounds.
      rows: Rows with the predictions of the full model.
      content: Content of the variant's file.
      predictions: Predictions of the variant for these rows.
      latencies: Measured latencies.
      student: Metrics of the student. None if the variant is not distilled.
      device: Measurements on the device. None without a device.
    """
    if not np.isfinite(predictions).all():
        return VariantResult(
            variant.name, ("expected finite predictions, received NaN or infinite values",), len(content)
        )
    metric, differences = rows.metric(predictions), rows.differences(predictions)
    measured = VariantResult(
        name=variant.name,
        why=(),
        bytes=len(content),
        gzip_bytes=len(gzip.compress(content, mtime=0)),
        metric=finite_or_none(metric),
        mean_difference=float(np.average(differences, weights=rows.weights)),
        max_difference=float(differences.max()),
        latencies=tuple(latencies),
        student=student,
        device=device,
    )
    drop = rows.metric(rows.predictions) - metric
    return replace(measured, why=tuple(_find_failures(variant, measured, rows.metric_name, drop)))


def _find_failures(variant: VariantConfig, measured: VariantResult, metric: str, drop: float) -> Iterator[str]:
    bounds: tuple[tuple[str, float | None, float | None], ...] = (
        (f"drop of {metric}", variant.max_metric_drop, drop),
        ("mean difference", variant.max_mean_difference, measured.mean_difference),
        ("greatest difference", variant.max_difference, measured.max_difference),
        ("kilobytes", variant.max_kilobytes, None if measured.bytes is None else measured.bytes / 1000),
        ("p99 in ms", variant.max_p99_ms, _select_p99(measured)),
    )
    if variant.device and measured.device:
        bounds += (("difference on the device", variant.device.max_difference, measured.device.max_difference),)
    for name, bound, value in bounds:
        # A metric that cannot be computed, for example the AUC of rows with a single class, is NaN. It is not checked.
        if bound is None or value is None or math.isnan(value):
            continue
        # The tolerance is relative to 1, because the values are differences between numbers of about 1.
        if not is_at_most(value, bound, 1.0, epsilon=FLOAT32_EPSILON):
            yield f"{name}: expected at most {bound:g}, received {value:.4g}"
    if variant.min_gain is not None and measured.student:
        gain = mean(measured.student.taught) - mean(measured.student.alone)
        if not math.isnan(gain) and not is_at_least(gain, variant.min_gain, 1.0, epsilon=FLOAT32_EPSILON):
            yield f"gain over the student alone: expected at least {variant.min_gain:g}, received {gain:.4g}"


def _select_p99(measured: VariantResult) -> float | None:
    if measured.device:
        return measured.device.p99_ms
    return measured.latencies[0].p99_ms if measured.latencies else None


def mean(values: Sequence[float | None]) -> float:
    """Return the mean of metrics; NaN if one of them cannot be computed."""
    return float(np.mean([math.nan if value is None else value for value in values]))


def finite_or_none(metric: float) -> float | None:
    """Return a metric; None if it cannot be computed."""
    return metric if math.isfinite(metric) else None


def _accuracy(labels: Array, probabilities: Array, sample_weight: Array) -> float:
    return float(metrics.accuracy_score(labels, probabilities.argmax(axis=1), sample_weight=sample_weight))


_METRICS: dict[Task, Callable[..., float]] = {
    "binary": metrics.roc_auc_score,
    "multiclass": _accuracy,
    "regression": metrics.r2_score,
}
