"""Tests of the linear part of an ensemble, whose logits equal closed forms and scikit-learn's, and of the weights."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from components.models.config import ModelConfig
from components.models.forest import TreeInput
from components.trainer import linear_learner
from components.trainer.ensemble_weights import choose_weights, mix
from components.trainer.forest_learner import ForestLearner
from components.trainer.linear_learner import LinearLearner, predict
from components.trainer.memory_rows import Rows
from components.trainer.prediction_head import BinaryHead, MulticlassHead, PredictionHead, RegressionHead
from components.trainer.validation_part import FoldMasks
from tests.support.data.tolerances import float32_sum

pytestmark = pytest.mark.both_lines

ROWS, PENALTY = 600, 10.0
RANDOM = np.random.default_rng(0)
INPUTS = [TreeInput("x", "number"), TreeInput("pair", "number", 2), TreeInput("word", "category")]
FEATURES = {
    "x": RANDOM.normal(3, 50, ROWS).astype(np.float32),
    "pair": RANDOM.normal(size=(ROWS, 2)).astype(np.float32),
    "word": RANDOM.choice([0, 2, 3, 900], ROWS),
}
SUM = float32_sum(8, largest=8)
"""Tolerance of a sum of eight terms in float32."""


def make_learner(head: PredictionHead, inputs: Any = INPUTS) -> LinearLearner:
    return LinearLearner(ForestLearner(ModelConfig(kind="gbt"), head, inputs, seed=1))


def make_terms() -> np.ndarray[Any, Any]:
    """Return the standardized numbers and the categories as columns of 0 and 1; the first is unknown, without rows."""
    numbers = np.column_stack([FEATURES["x"], FEATURES["pair"]]).astype(np.float64)
    hot = (FEATURES["word"][:, np.newaxis] == [-1, 0, 2, 3, 900]).astype(float)
    return np.hstack([(numbers - numbers.mean(axis=0)) / numbers.std(axis=0), hot])


def predict_all(learner: LinearLearner, label: np.ndarray[Any, Any], weight: Any = None) -> np.ndarray[Any, Any]:
    linear = learner.fit(Rows(FEATURES, label, weight), PENALTY)
    assert linear is not None
    return predict(linear, FEATURES)


def test_regression_equals_the_closed_form_of_a_ridge() -> None:
    label = (5 + 2 * (0.02 * FEATURES["x"] - FEATURES["pair"][:, 1] + (FEATURES["word"] == 3))).astype(np.float32)
    terms, target = make_terms(), (label.astype(np.float64) - 5) / 2
    centered = terms - terms.mean(axis=0)
    weights = np.linalg.solve(centered.T @ centered + PENALTY * np.eye(8), centered.T @ (target - target.mean()))
    expected = centered @ weights + target.mean()
    actual = predict_all(make_learner(RegressionHead(scale=(5.0, 2.0))), label)
    SUM.assert_close(actual[:, 0], expected)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_classification_equals_scikit_learns(classes: int, weighted: bool) -> None:
    score = FEATURES["x"] / 50 + (FEATURES["word"] == 900) + RANDOM.normal(size=ROWS)
    label = np.digitize(score, [0, 1][: classes - 1])
    weight = RANDOM.choice([0.0, 1.0, 3.0], ROWS).astype(np.float32) if weighted else None
    head = BinaryHead() if classes == 2 else MulticlassHead(outputs=3, classes="abc")
    model = LogisticRegression(C=1 / PENALTY, solver="newton-cg", tol=1e-8).fit(make_terms(), label, weight)
    expected = model.decision_function(make_terms()).reshape(ROWS, -1)
    np.testing.assert_allclose(predict_all(make_learner(head), label, weight), expected, rtol=0, atol=5e-4)


def test_numbers_beyond_those_in_training_count_as_the_last() -> None:
    linear = make_learner(RegressionHead(scale=(0.0, 1.0))).fit(Rows(FEATURES, FEATURES["x"]), PENALTY)
    assert linear is not None
    extremes = [FEATURES["x"].min(), -1e30, FEATURES["x"].max(), 1e30]
    rows = {name: np.repeat(values[:1], 4, axis=0) for name, values in FEATURES.items()}
    logits = predict(linear, {**rows, "x": np.array(extremes, np.float32)})[:, 0]
    np.testing.assert_array_equal(logits[::2], logits[1::2])
    assert logits[0] < logits[2] - 100


def test_logits_of_a_row_come_from_the_fold_that_was_not_trained_on_it() -> None:
    label = (RANDOM.random(ROWS) < 0.5).astype(np.int64)
    learner = make_learner(BinaryHead(), [TreeInput("x", "number")])
    folds = [np.arange(ROWS) % 3 == fold for fold in range(3)]
    rows = Rows({"x": FEATURES["x"]}, label)
    selected = learner.select(rows, [FoldMasks.of(fold) for fold in folds])
    assert selected is not None
    logits = {penalty: np.empty((ROWS, 1), np.float32) for penalty in (1.0, 10.0, 100.0)}
    for penalty, fold in itertools.product(logits, folds):
        linear = learner.fit(rows.where(~fold), penalty)
        assert linear is not None
        logits[penalty][fold] = predict(linear, {"x": FEATURES["x"][fold]})
    losses = {penalty: log_loss(label, expit(values[:, 0])) for penalty, values in logits.items()}
    assert selected.penalty == min(losses, key=losses.__getitem__)
    np.testing.assert_array_equal(selected.logits, logits[selected.penalty])


def test_folds_with_rolling_origins_are_predicted_by_ridges_of_earlier_rows() -> None:
    label = (0.02 * FEATURES["x"] + RANDOM.normal(size=ROWS) * np.linspace(0, 2, ROWS)).astype(np.float32)
    number = np.arange(ROWS)
    masks = [FoldMasks(number < start - 20, (start <= number) & (number < start + 100)) for start in (400, 500)]
    head = RegressionHead(scale=(0.0, 1.0))
    selected = make_learner(head, [TreeInput("x", "number")]).select(Rows({"x": FEATURES["x"]}, label), masks)
    assert selected is not None
    x = FEATURES["x"].astype(np.float64)
    expected = {}
    for penalty in (1.0, 10.0, 100.0):
        lines = []
        for training, held_out in masks:
            mean, deviation = x[training].mean(), x[training].std()
            z, target = (x[training] - mean) / deviation, label[training] - label[training].mean()
            slope = (z @ target) / (z @ z + penalty)
            # A linear model does not extrapolate.
            within = np.clip(x[held_out], x[training].min(), x[training].max())
            lines.append((within - mean) / deviation * slope + label[training].mean())
        expected[penalty] = np.concatenate(lines)
    losses = {penalty: np.square(line - label[400:]).mean() for penalty, line in expected.items()}
    assert selected.penalty == min(losses, key=losses.__getitem__)
    np.testing.assert_allclose(selected.logits[:, 0], expected[selected.penalty], rtol=1e-4, atol=1e-4)


def test_large_table_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_learner, "_MOST_NUMBERS", 4 * 100)
    label = (FEATURES["x"] > 3).astype(np.int64)
    learner = make_learner(BinaryHead())
    assert len(learner._compute_terms(Rows(FEATURES, label)).rows.label) == 100
    # A sample would not have the only row of a class.
    label[:] = 0
    label[7] = 1
    assert len(learner._compute_terms(Rows(FEATURES, label)).rows.label) == ROWS


def test_class_without_rows_cannot_be_learned() -> None:
    label = np.where(np.arange(ROWS) % 2, 0, 3)
    head = MulticlassHead(outputs=4, classes="abcd")
    assert make_learner(head).select(Rows(FEATURES, label), [FoldMasks.of(np.arange(ROWS) < 100)]) is None


@pytest.mark.parametrize("weights", [(0.5, 0.3, 0.2), (0.0, 0.25, 0.75), (1.0, 0.0, 0.0)])
def test_weights_of_members_minimize_the_loss(weights: tuple[float, ...]) -> None:
    members = [RANDOM.normal(size=(ROWS, 1)).astype(np.float32) for _ in weights]
    target = mix(members, weights)
    found = choose_weights(members, lambda logits: float(np.square(logits - target).mean()))
    np.testing.assert_allclose(found, weights, rtol=0, atol=2e-3)
    assert found.sum() == pytest.approx(1, abs=1e-6)


def test_member_that_would_get_a_negative_weight_has_none() -> None:
    first, second = (RANDOM.normal(size=(ROWS, 1)).astype(np.float32) for _ in range(2))
    target = 1.5 * first - 0.5 * second
    found = choose_weights([first, second], lambda logits: float(np.square(logits - target).mean()))
    np.testing.assert_allclose(found, [1, 0], rtol=0, atol=2e-3)
