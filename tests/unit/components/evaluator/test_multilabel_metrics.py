"""The metrics of a multilabel task equal scikit-learn's, and their intervals those of a bootstrap in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import special
from sklearn import metrics

from components.evaluator.plan import EvaluationPlan
from tests.support.data import columnar_results
from tests.support.data.columnar_results import bounds_of, value_of

Array = npt.NDArray[Any]
ROWS, CLASSES, WIDTH = 3000, 6, 9
RANDOM = np.random.default_rng(8)
LOGITS = RANDOM.normal(size=(ROWS, CLASSES)) * 1.5 + np.linspace(-3, 1, CLASSES)
IS_CLASS = RANDOM.random((ROWS, CLASSES)) < special.expit(0.8 * LOGITS)
PROBABILITIES = special.expit(LOGITS).astype(np.float32)
LABELS = np.pad(IS_CLASS, [(0, 0), (0, WIDTH - CLASSES)]).astype(np.float32)
WEIGHTS = RANDOM.uniform(0, 3, ROWS)
NAMES = ("log_loss", "micro_f1", "macro_f1", "macro_auc", "macro_average_precision", "hamming_loss", "subset_accuracy")
WITH_INTERVAL = ("log_loss", "micro_f1", "macro_f1", "hamming_loss", "subset_accuracy")
ATOL = {"macro_auc": 1e-4, "macro_average_precision": 2e-4}
"""Areas under curves are computed from bins of logits."""


def mean_log_loss(y: Array, p: Array, sample_weight: Array | None = None) -> float:
    losses = [metrics.log_loss(y[:, at], p[:, at].astype(float), sample_weight=sample_weight) for at in range(CLASSES)]
    return float(np.mean(losses))


EXPECTED: dict[str, Callable[..., float]] = {
    "log_loss": mean_log_loss,
    "micro_f1": lambda y, p, **weights: metrics.f1_score(y, p >= 0.5, average="micro", **weights),
    "macro_f1": lambda y, p, **weights: metrics.f1_score(y, p >= 0.5, average="macro", **weights),
    "macro_auc": lambda y, p, **weights: metrics.roc_auc_score(y, p, **weights),
    "macro_average_precision": lambda y, p, **weights: metrics.average_precision_score(y, p, **weights),
    "hamming_loss": lambda y, p, **weights: metrics.hamming_loss(y, p >= 0.5, **weights),
    "subset_accuracy": lambda y, p, **weights: metrics.accuracy_score(y, p >= 0.5, **weights),
}


def evaluate(labels: Array, predictions: Array, weights: Array | None = None, parts: int = 1) -> dict[str, Any]:
    """Return the results by name, from the merged sums of some parts of the rows."""
    plan = EvaluationPlan.model_validate(
        {"evaluation": {"metrics": NAMES, "thresholds": {"log_loss": {"max": 1}}}, "task": "multilabel"}
        | {"labels": [{"text": "y"}], "prediction_key": "probabilities", "weight": None if weights is None else "w"}
    )
    return columnar_results.evaluate(plan, labels, lambda _: predictions, weights, parts)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("parts", [1, 7])
def test_metrics_are_those_of_scikit_learn(weights: Array | None, parts: int) -> None:
    results = evaluate(LABELS, PROBABILITIES, weights, parts)
    for name, function in EXPECTED.items():
        expected = function(IS_CLASS, PROBABILITIES, **({} if weights is None else {"sample_weight": weights}))
        np.testing.assert_allclose(value_of(results[name]), expected, atol=ATOL.get(name, 1e-6), err_msg=name)


@pytest.mark.extended
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_intervals_are_those_of_a_bootstrap(weights: Array | None) -> None:
    results, random = evaluate(LABELS, PROBABILITIES, weights), np.random.default_rng(1)
    draws = [random.integers(0, ROWS, ROWS) for _ in range(150)]
    given = np.ones(ROWS) if weights is None else weights
    for name in WITH_INTERVAL:
        drawn = [EXPECTED[name](IS_CLASS[rows], PROBABILITIES[rows], sample_weight=given[rows]) for rows in draws]
        low, high = bounds_of(results[name])
        assert low < value_of(results[name]) < high
        np.testing.assert_allclose((high - low) / 2, 1.96 * np.std(drawn), rtol=0.3, atol=0, err_msg=name)


def test_constant_predicts_the_shares_of_the_classes() -> None:
    results = evaluate(LABELS, PROBABILITIES)
    shares = np.tile(IS_CLASS.mean(axis=0), (ROWS, 1))
    for name in ("log_loss", "macro_auc", "macro_average_precision", "hamming_loss"):
        expected = EXPECTED[name](IS_CLASS, shares)
        np.testing.assert_allclose(value_of(results[f"constant {name}"]), expected, atol=1e-6, err_msg=name)
    gain = results["gain over the constant log_loss"]
    difference = mean_log_loss(IS_CLASS, shares) - mean_log_loss(IS_CLASS, PROBABILITIES)
    np.testing.assert_allclose(value_of(gain), difference, atol=1e-6)
    y, p, q = IS_CLASS.astype(float), PROBABILITIES.astype(float), shares
    paired = (y * np.log(p / q) + (1 - y) * np.log((1 - p) / (1 - q))).mean(axis=1)
    low, high = bounds_of(gain)
    np.testing.assert_allclose((high - low) / 2, 1.96 * paired.std() / np.sqrt(ROWS), rtol=0.3, atol=0)


def test_classes_without_both_labels_do_not_count_in_areas() -> None:
    labels, is_class = LABELS.copy(), IS_CLASS.copy()
    labels[:, 0] = is_class[:, 0] = 0
    labels[:, 1] = is_class[:, 1] = 1
    results = evaluate(labels, PROBABILITIES)
    expected = metrics.roc_auc_score(is_class[:, 2:], PROBABILITIES[:, 2:])
    np.testing.assert_allclose(value_of(results["macro_auc"]), expected, atol=1e-4)
    expected = metrics.average_precision_score(is_class[:, 1:], PROBABILITIES[:, 1:])
    np.testing.assert_allclose(value_of(results["macro_average_precision"]), expected, atol=2e-4)


def test_a_model_without_classes_in_labels_and_decisions_has_no_f1() -> None:
    results = evaluate(np.zeros((9, WIDTH), np.float32), np.full((9, CLASSES), 0.1, np.float32))
    assert np.isnan(value_of(results["micro_f1"]))
    assert np.isnan(value_of(results["macro_auc"]))
    assert value_of(results["macro_f1"]) == 0
    assert value_of(results["subset_accuracy"]) == 1
