"""Small tables of labels and predictions for typical errors in metrics, with scikit-learn's values of the metrics.

A table has the columns `label` and `score`, or `score_0`, `score_1`, … of several classes; also `weight`, `group` and a
column of slices where they matter. Nothing here may import the project's code: a test checks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn import metrics as sklearn_metrics

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Scored:
    """Labels and predictions.

    Attributes:
      columns: name → the values of all rows; None where one is missing.
      metrics: the metrics to compute.
      task: binary, multiclass or regression.
      group: the column of the groups, "" without.
      slice_by: the column of the slices, "" without.
      classes: of a multiclass task.
    """

    columns: dict[str, Any]
    metrics: tuple[str, ...]
    task: str = "binary"
    group: str = ""
    slice_by: str = ""
    classes: int = 0

    def expected(self, rows: Array) -> dict[str, float]:
        """Return the defined metrics of the rows that a mask, bool [rows], selects."""
        label = np.asarray(self.columns["label"])[rows]
        weight = np.asarray(self.columns.get("weight", np.ones(len(rows))), np.float64)[rows]
        if self.classes:
            score = np.stack([self.columns[f"score_{number}"] for number in range(self.classes)], axis=1)[rows]
        else:
            score = np.asarray(self.columns["score"])[rows]
        score = score.astype(np.float64)
        groups = np.asarray(self.columns[self.group], object)[rows] if self.group else None
        metrics: dict[str, float] = {}
        for name in self.metrics:
            value = _mean_over_groups(name, label, score, groups) if groups is not None and name in GROUPED else None
            value = _value(name, label, score, weight) if value is None else value
            if np.isfinite(value):
                metrics[name] = float(value)
        return metrics


def _value(name: str, y: Array, p: Array, w: Array) -> float:
    """Return a metric of rows: labels, predictions and weights."""
    base, _, number = name.rpartition("_at_")
    if base and name not in REFERENCES:
        # Predictions are float32, so that a prediction of 0.7 is at the threshold 0.7.
        return NUMBERED[base](y, p, w, float(np.float32(number)) if float(number) < 1 else float(number))
    return REFERENCES[name](y, p, w)


def _mean(values: Array, w: Array) -> float:
    return float((w * values).sum() / w.sum())


def _if_both(function: Callable[..., float]) -> Callable[[Array, Array, Array], float]:
    return lambda y, p, w: function(y, p, sample_weight=w) if 0 < (w * y).sum() < w.sum() else np.nan


def _calibration_error(y: Array, p: Array, w: Array) -> float:
    bins = np.minimum((p * 10).astype(int), 9)
    return float(sum(abs((w * (p - y))[bins == number].sum()) for number in range(10)) / w.sum())


def _precision(y: Array, p: Array, w: Array, threshold: float = 0.5) -> float:
    return float(sklearn_metrics.precision_score(y, p >= threshold, sample_weight=w, zero_division=np.nan))


def _recall(y: Array, p: Array, w: Array, threshold: float = 0.5) -> float:
    return float(sklearn_metrics.recall_score(y, p >= threshold, sample_weight=w, zero_division=np.nan))


def _f1(y: Array, p: Array, w: Array, threshold: float = 0.5) -> float:
    return float(sklearn_metrics.f1_score(y, p >= threshold, sample_weight=w, zero_division=np.nan))


def _accuracy(y: Array, p: Array, w: Array, threshold: float = 0.5) -> float:
    return _mean((p >= threshold) == y, w)


def _top(y: Array, p: Array, w: Array, rows: float) -> tuple[float, float, float]:
    """Return the weights of labels 1 among the first rows, of the first rows, and of all labels 1; without ties."""
    first = np.argsort(-p)[: int(rows)]
    return float((w * y)[first].sum()), float(w[first].sum()), float((w * y).sum())


def _precision_of_top(y: Array, p: Array, w: Array, number: float) -> float:
    hits, predicted, _ = _top(y, p, w, number)
    return hits / predicted


def _recall_of_top(y: Array, p: Array, w: Array, number: float) -> float:
    hits, _, every = _top(y, p, w, number)
    return hits / every if every else np.nan


def _or_top(of_threshold: Callable[..., float], of_top: Callable[..., float]) -> Callable[..., float]:
    return lambda y, p, w, number: (of_threshold if number < 1 else of_top)(y, p, w, number)


def _log_loss(y: Array, p: Array, w: Array) -> float:
    q = np.clip(p, 1e-7, 1 - 1e-7)
    return _mean(-(y * np.log(q) + (1 - y) * np.log1p(-q)), w)


def _crossentropy(y: Array, p: Array, w: Array) -> float:
    return _mean(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-7)), w)


REFERENCES: dict[str, Callable[[Array, Array, Array], float]] = {
    "auc": _if_both(sklearn_metrics.roc_auc_score),
    "auc_precision_recall": _if_both(sklearn_metrics.average_precision_score),
    "binary_accuracy": _accuracy,
    "binary_crossentropy": _log_loss,
    "calibration": lambda y, p, w: (w * p).sum() / (w * y).sum() if (w * y).sum() else np.nan,
    "expected_calibration_error": _calibration_error,
    "precision": _precision,
    "recall": _recall,
    "f1": _f1,
    "brier_score": lambda y, p, w: _mean((p - y) ** 2, w),
    "accuracy": lambda y, p, w: _mean(p.argmax(axis=1) == y, w),
    "crossentropy": _crossentropy,
    "mean_squared_error": lambda y, p, w: sklearn_metrics.mean_squared_error(y, p, sample_weight=w),
    "mean_absolute_error": lambda y, p, w: sklearn_metrics.mean_absolute_error(y, p, sample_weight=w),
    "root_mean_squared_error": lambda y, p, w: np.sqrt(sklearn_metrics.mean_squared_error(y, p, sample_weight=w)),
    "mean_absolute_percentage_error": lambda y, p, w: 100 * _mean(abs((y - p) / np.maximum(abs(y), 1e-7)), w),
    "smape": lambda y, p, w: 200 * _mean(abs(y - p) / (abs(y) + abs(p)), w),
    "wape": lambda y, p, w: 100 * (w * abs(y - p)).sum() / (w * abs(y)).sum(),
    "r_squared": lambda y, p, w: sklearn_metrics.r2_score(y, p, sample_weight=w),
    "poisson_deviance": lambda y, p, w: sklearn_metrics.mean_poisson_deviance(y, p, sample_weight=w),
}
"""Metric → its value of labels, predictions and weights."""
NUMBERED: dict[str, Callable[[Array, Array, Array, float], float]] = {
    "precision": _or_top(_precision, _precision_of_top),
    "recall": _or_top(_recall, _recall_of_top),
    "f1": _f1,
    "binary_accuracy": _accuracy,
    "accuracy": lambda y, p, w, k: _mean(np.sum(p > p[np.arange(len(y)), y][:, None], axis=1) < k, w),
    "quantile_loss": lambda y, p, w, q: sklearn_metrics.mean_pinball_loss(y, p, alpha=q, sample_weight=w),
    "tweedie_deviance": lambda y, p, w, power: sklearn_metrics.mean_tweedie_deviance(
        y, p, power=power, sample_weight=w
    ),
}
"""Metric without its number → the same, with the number."""
GROUPED = ("gauc", "mrr", "ndcg_at_5", "mrr_at_5", "group_recall_at_2", "group_precision_at_2")


def _mean_over_groups(name: str, y: Array, p: Array, groups: Array) -> float:
    """Return the mean of a metric over the groups for which it is defined."""
    base, _, number = name.partition("_at_")
    values, weights = [], []
    for group in sorted({group for group in groups if group is not None}):
        rows = groups == group
        labels, scores = y[rows], p[rows]
        if not labels.any() or (base == "gauc" and labels.all()):
            continue
        order = np.argsort(-scores)
        ranked = labels[order]
        first = int(number or 0)
        values.append(
            {
                "gauc": lambda y=labels, p=scores: sklearn_metrics.roc_auc_score(y, p),
                "mrr": lambda r=ranked, n=first: (1 / (1 + r.argmax())) * (not n or r.argmax() < n),
                "ndcg": lambda y=labels, p=scores, n=first: (
                    sklearn_metrics.ndcg_score([y], [p], k=n) if len(y) > 1 else 1.0
                ),
                "group_recall": lambda r=ranked, n=first: r[:n].sum() / r.sum(),
                "group_precision": lambda r=ranked, n=first: r[:n].sum() / n,
            }[base]()
        )
        weights.append(rows.sum() if base == "gauc" else 1)
    return float(np.average(values, weights=weights)) if values else np.nan


BINARY = (
    "auc", "auc_precision_recall", "binary_accuracy", "binary_crossentropy", "calibration",
    "expected_calibration_error", "precision", "recall", "f1", "brier_score", "precision_at_0.7", "recall_at_0.7",
    "f1_at_0.7", "binary_accuracy_at_0.7",
)  # fmt: skip

SCORED: dict[str, Callable[[], Scored]] = {}
"""Name → makes the table."""


def register(make: Callable[[], Scored]) -> Callable[[], Scored]:
    """Register a table by the name of its function."""
    SCORED[make.__name__] = make
    return make


def _labels(random: np.random.Generator, score: Array, noise: float = 0.3) -> Array:
    return (score + random.normal(0, noise, len(score)) > 0.5).astype(np.int64)


@register
def rare_positives() -> Scored:
    """Five positives among 4,000 rows, and predictions between 0.001 and 0.0012."""
    random = np.random.default_rng(21)
    label = np.zeros(4000, np.int64)
    label[[7, 900, 1900, 2900, 3999]] = 1
    score = np.float32(0.001 + 0.0002 * random.permutation(4000) / 4000)
    score[label == 1] += np.float32(0.00007)
    return Scored({"label": label, "score": score}, (*BINARY, "precision_at_100", "recall_at_100"))


@register
def equal_predictions() -> Scored:
    """Five different predictions, two of them exactly at the thresholds, also 0 and 1 with wrong labels."""
    random = np.random.default_rng(22)
    score = np.float32(random.choice([0, 0.25, 0.5, 0.7, 1], 500))
    return Scored({"label": _labels(random, score), "score": score}, BINARY)


@register
def weights_by_label() -> Scored:
    """Weights that undo the sampling of one class, some of them 0 or very large."""
    random = np.random.default_rng(23)
    score = np.float32(random.uniform(size=600))
    label = _labels(random, score)
    weight = np.where(label == 1, 1.0, random.choice([0.0, 20.0, 1e4], 600, p=[0.2, 0.75, 0.05])).astype(np.float32)
    return Scored({"label": label, "score": score, "weight": weight}, (*BINARY, "precision_at_50", "recall_at_50"))


@register
def slices_of_one_class() -> Scored:
    """Return slices with a single class, and rows whose slice column is empty."""
    random = np.random.default_rng(24)
    score = np.float32(random.uniform(size=400))
    label = _labels(random, score)
    place = [None if row % 7 == 0 else ["north", "south", "ost/west"][row % 3] for row in range(400)]
    label[[row for row, name in enumerate(place) if name == "south"]] = 0
    return Scored({"label": label, "score": score, "place": place}, BINARY, slice_by="place")


@register
def groups_of_users() -> Scored:
    """Users with one row, with one class, and rows without a user."""
    random = np.random.default_rng(25)
    score = np.float32(random.permutation(300) / 300)
    user = [None if row % 11 == 0 else int(random.integers(0, 40)) for row in range(300)]
    return Scored({"label": _labels(random, score), "score": score, "user": user}, GROUPED, group="user")


@register
def edges_of_bins() -> Scored:
    """Predictions at the edges of the bins of the calibration error."""
    random = np.random.default_rng(26)
    score = np.float32(random.integers(0, 9, 300) / 8)
    return Scored({"label": _labels(random, score), "score": score}, BINARY)


@register
def class_without_rows() -> Scored:
    """Return four classes: one lacks rows, and one is never predicted."""
    random = np.random.default_rng(27)
    label = random.choice([0, 1, 3], 300)
    score = random.dirichlet([1, 1, 1, 1], 300)
    score[:, 3] *= 0.01
    score = np.float32(score / score.sum(axis=1, keepdims=True))
    columns = {"label": label, **{f"score_{number}": score[:, number] for number in range(4)}}
    return Scored(columns, ("accuracy", "crossentropy", "accuracy_at_2"), "multiclass", classes=4)


@register
def large_labels() -> Scored:
    """Labels of a million that differ by a few."""
    random = np.random.default_rng(28)
    label = np.float32(1_000_000 + random.integers(0, 64, 300))
    score = np.float32(label + random.integers(-4, 5, 300))
    metrics = (
        "mean_squared_error", "mean_absolute_error", "root_mean_squared_error", "mean_absolute_percentage_error",
        "r_squared", "poisson_deviance", "smape", "wape",
    )  # fmt: skip
    return Scored({"label": label, "score": score}, metrics, "regression")


@register
def many_zeros() -> Scored:
    """Return amounts, most of them 0, and weights."""
    random = np.random.default_rng(29)
    label = np.float32(np.where(random.random(300) < 0.7, 0, random.gamma(2, 50, 300)))
    score = np.float32(0.5 + random.gamma(2, 20, 300))
    metrics = (
        *("tweedie_deviance_at_1.5", "poisson_deviance", "quantile_loss_at_0.9", "mean_absolute_error"),
        *("smape", "wape"),
    )
    return Scored(
        {"label": label, "score": score, "weight": np.float32(random.uniform(0, 3, 300))}, metrics, "regression"
    )
