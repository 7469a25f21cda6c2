"""Intervals of weighted metrics equal the bootstrap, with weights that depend on label and prediction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from scipy import stats
from sklearn import metrics

from components.base.config_section import Task
from components.compat.tfma import evaluation
from components.evaluator import binned_sums
from components.evaluator.binned_sums import Slices
from components.evaluator.columnar import Metrics
from components.evaluator.config import EvaluationConfig
from components.evaluator.eval_config import eval_config
from components.evaluator.plan import EvaluationPlan
from components.features.expression import Label

ROWS, DRAWS = 1_000, 300
Measure = Callable[[Any, Any, Any], float]


def compute_intervals(task: Task, labels: Any, predictions: Any, weights: Any, **section: Any) -> dict[str, Any]:
    """Return value, lower bound and upper bound of every metric over all rows, by the name of the metric."""
    first = section["metrics"][0]
    config = EvaluationConfig.model_validate({"thresholds": {first: {"min": 0}}, **section})
    plan = EvaluationPlan(evaluation=config, task=task, labels=(Label("label"),), weight="weight")
    tfma_config = tfma.utils.update_eval_config_with_defaults(
        eval_config(plan, plan.labels[0]), has_baseline=False, rubber_stamp=True
    )
    computed, results = Metrics(tfma_config), dict[Any, Any]()
    slices = Slices([()], np.arange(len(labels)), np.zeros(len(labels), np.int64))
    for combiner in computed.columnar:
        factors = weights**combiner.power if combiner.is_weighted else None
        results.update(
            combiner.result(binned_sums.count(combiner.bins(labels, predictions), slices, factors).select_slice(0))
        )
    completed = evaluation.complete_results(results, computed.parts, tfma_config)
    return {
        key.name: (value.value.value, value.lower_bound.value, value.upper_bound.value)
        for key, value in completed.items()
        if hasattr(value, "lower_bound")
    }


def draw_rows(count: int, seed: int) -> tuple[Any, Any, Any]:
    """Draw rows of a rare event: 1 in 20 rows with label 0 is kept, with weight 20. Rows with x > 0.5 count half."""
    random = np.random.default_rng(seed)
    x = random.normal(0, 1, count * 10)
    probability = 1 / (1 + np.exp(-(1.5 * x - 2)))
    labels = (random.random(len(x)) < probability).astype(float)
    rows = np.flatnonzero((labels == 1) | (random.random(len(x)) < 0.05))[:count]
    weights = np.where(labels == 0, 20.0, 1.0) * np.where(x > 0.5, 0.5, 1.0)
    return labels[rows], probability[rows].astype(np.float32), weights[rows]


def share(row_values: Callable[[Any, Any], Any]) -> Measure:
    """Return the weighted mean of a function of labels and predictions as a measure."""
    return lambda y, p, w: float(np.average(row_values(y, p), weights=w))


BINARY: dict[str, Measure] = {
    "auc": lambda y, p, w: metrics.roc_auc_score(y, p, sample_weight=w),
    "auc_precision_recall": lambda y, p, w: metrics.average_precision_score(y, p, sample_weight=w),
    "binary_crossentropy": lambda y, p, w: metrics.log_loss(y, p, sample_weight=w),
    "calibration": lambda y, p, w: float((w * p).sum() / (w * y).sum()),
    "binary_accuracy": share(lambda y, p: (p >= 0.5) == y),
    "precision": lambda y, p, w: metrics.precision_score(y, p >= 0.5, sample_weight=w),
    "recall": lambda y, p, w: metrics.recall_score(y, p >= 0.5, sample_weight=w),
    "positive_rate": share(lambda y, p: p >= 0.1),
    "false_positive_rate": lambda y, p, w: float(np.average(p[y == 0] >= 0.1, weights=w[y == 0])),
    "gain over the constant binary_crossentropy": lambda y, p, w: float(
        metrics.log_loss(y, np.full(len(y), np.average(y, weights=w)), sample_weight=w)
        - metrics.log_loss(y, p, sample_weight=w)
    ),
    "gain over the constant brier_score": lambda y, p, w: float(
        np.average((y - np.average(y, weights=w)) ** 2 - (y - p) ** 2, weights=w)
    ),
}


def assert_intervals(task: Task, expected: dict[str, Measure], rows: tuple[Any, Any, Any], **section: Any) -> None:
    """Compare the values, and compare the half widths with 1.96 standard deviations over resampled rows."""
    names = [name for name in expected if not name.startswith("gain") and not name.endswith("_rate")]
    computed = compute_intervals(task, *rows, metrics=names, **section)
    random, draws = np.random.default_rng(3), []
    for _ in range(DRAWS):
        some = random.integers(0, len(rows[0]), len(rows[0]))
        draws.append([measure(*(column[some] for column in rows)) for measure in expected.values()])
    for (name, measure), deviation in zip(expected.items(), np.std(draws, axis=0), strict=True):
        value, low, high = computed[name]
        assert value == pytest.approx(measure(*rows), rel=1e-3, abs=1e-4), name
        # The standard deviation of 300 draws has a relative error of 4 %.
        assert (high - low) / 2 == pytest.approx(1.96 * deviation, rel=0.17, abs=1e-6), name


@pytest.mark.extended
def test_intervals_of_a_binary_task_equal_the_bootstrap() -> None:
    labels, predictions, weights = draw_rows(ROWS, 1)
    section = {"fairness": {"column": "group", "at": 0.1}}
    assert_intervals("binary", BINARY, (labels, predictions, weights), **section)


def test_intervals_of_a_multiclass_task_equal_the_bootstrap() -> None:
    random = np.random.default_rng(4)
    labels = random.choice(3, ROWS, p=[0.2, 0.4, 0.4])
    predictions = random.dirichlet([1, 1, 1], ROWS) + 0.2 * np.eye(3)[labels]
    predictions = (predictions / predictions.sum(axis=1, keepdims=True)).astype(np.float32)
    # Correct predictions and rows of the first class have smaller weights.
    weights = np.where(predictions.argmax(axis=1) == labels, 1.0, 8.0) / np.where(labels == 0, 5.0, 1.0)
    expected: dict[str, Measure] = {
        "accuracy": share(lambda y, p: p.argmax(axis=1) == y),
        "accuracy_at_2": share(lambda y, p: (np.argsort(-p, axis=1)[:, :2] == y[:, None]).any(axis=1)),
        "crossentropy": share(lambda y, p: -np.log(p[np.arange(len(y)), y])),
        "gain over the constant balanced_accuracy": lambda y, p, w: float(
            metrics.recall_score(y, p.argmax(axis=1), average="macro", sample_weight=w) - 1 / 3
        ),
    }
    assert_intervals("multiclass", expected, (labels, predictions, weights))


def test_intervals_of_a_regression_equal_the_bootstrap() -> None:
    random = np.random.default_rng(5)
    labels = random.gamma(2, 2, ROWS)
    predictions = (labels + random.normal(0, 1, ROWS)).astype(np.float32)
    weights = np.where(np.abs(predictions - labels) > 1, 1.0, 6.0)
    expected: dict[str, Measure] = {
        "mean_absolute_error": share(lambda y, p: np.abs(y - p)),
        "mean_squared_error": share(lambda y, p: (y - p) ** 2),
        "root_mean_squared_error": lambda y, p, w: math.sqrt(np.average((y - p) ** 2, weights=w)),
        "gain over the constant mean_squared_error": lambda y, p, w: float(
            np.average((y - np.average(y, weights=w)) ** 2 - (y - p) ** 2, weights=w)
        ),
    }
    assert_intervals("regression", expected, (labels, predictions, weights))


def test_interval_of_a_mean_has_the_linearized_variance() -> None:
    labels, predictions, weights = draw_rows(ROWS, 2)
    losses, total = (labels - predictions.astype(float)) ** 2, weights.sum()
    mean, count = np.average(losses, weights=weights), total**2 / (weights**2).sum()
    error = math.sqrt((weights**2 * (losses - mean) ** 2).sum() / total**2 * count / (count - 1))
    half = stats.t.ppf(0.975, count - 1) * error
    computed = compute_intervals("regression", labels, predictions, weights, metrics=["mean_squared_error"])
    expected = (mean, mean - half, mean + half)
    assert computed["mean_squared_error"] == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_good_models_beat_the_constant() -> None:
    passed = 0
    for seed in range(30):
        _, low, _ = compute_intervals("binary", *draw_rows(500, 100 + seed), metrics=["auc"])[
            "gain over the constant binary_crossentropy"
        ]
        passed += low > 0
    assert passed == 30
