"""What is learned: losses of one network or of an ensemble's members, weights of classes, the scale of a number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.errors import InputError
from components.features import names
from components.features.config import FeaturesConfig
from components.features.plan import FeaturePlan
from components.trainer.target import Target, target

FEATURES = FeaturesConfig.model_validate({"columns": {"x": "z_score"}})


class Known:
    """What a transform graph knows of the label: a file's lines by its name."""

    def __init__(self, **lines: list[bytes]) -> None:
        self.vocabulary_by_name = lines.__getitem__


def made(task: Any, weights: Any = None, **lines: list[bytes]) -> Target:
    return target(FeaturePlan(features=FEATURES, label="y", task=task), Known(**lines), weights)


BINARY = {names.LABEL_COUNTS: [b"30 0", b"10 1"]}
CLASSES = {names.LABEL_COUNTS: [b"6 a", b"3 b", b"1 c"], names.LABEL_CLASSES: [b"a", b"b", b"c"]}
LABELS = {"binary": [0, 1, 1, 0], "multiclass": [2, 0, 1, 1], "regression": [5.0, 2.0, -1.0, 7.0]}
LINES = {"binary": BINARY, "multiclass": CLASSES, "regression": {names.LABEL_SCALE: [b"4", b"0", b"3.0", b"2.0"]}}


def logits(task: str, members: int | None) -> Any:
    outputs = 3 if task == "multiclass" else 1
    shape = (4, outputs) if members is None else (4, members, outputs)
    return tf.constant(np.random.default_rng(1).normal(size=shape), tf.float32)


@pytest.mark.parametrize("task", LABELS)
def test_each_member_of_an_ensemble_has_its_own_loss(task: str) -> None:
    goal, label, given = made(task, **LINES[task]), tf.constant(LABELS[task]), logits(task, 5)
    alone = [goal.losses(label[:, None], given[:, member]) for member in range(5)]
    np.testing.assert_allclose(goal.losses(label, given), np.mean(alone, axis=0), rtol=1e-5)


@pytest.mark.parametrize(("task", "answer"), [("binary", "probability"), ("multiclass", "probabilities")])
def test_an_ensemble_answers_by_the_mean_probability(task: str, answer: str) -> None:
    goal, given = made(task, **LINES[task]), 40 * logits(task, 5)
    alone = [goal.answers(given[:, member])[answer] for member in range(5)]
    np.testing.assert_allclose(goal.answers(goal.joined(given))[answer], np.mean(alone, axis=0), rtol=1e-4, atol=1e-7)
    assert np.isfinite(goal.joined(given)).all()


def test_a_number_is_learned_in_standard_deviations_and_answered_in_its_own_unit() -> None:
    goal, label = made("regression", **LINES["regression"]), tf.constant(LABELS["regression"])
    right = (label[:, None] - 3) / 2
    np.testing.assert_allclose(goal.losses(label, right), 0, atol=1e-12)
    np.testing.assert_allclose(goal.losses(label, right + 1), 1, rtol=1e-6)
    np.testing.assert_allclose(goal.answers(goal.joined(right))["prediction"][:, 0], label, rtol=1e-6)
    np.testing.assert_allclose(goal.joined(tf.stack([right - 1, right + 3], axis=1)), right + 1, rtol=1e-6)
    (metric,) = goal.metrics
    metric.update_state(label[:, None], right + 0.5)
    assert float(metric.result()) == pytest.approx(1.0)


@pytest.mark.parametrize("members", [None, 3])
def test_a_class_that_training_does_not_know_is_an_answer_of_no_probability(members: int | None) -> None:
    goal = made("multiclass", {"c": 2.0}, **CLASSES)
    losses = goal.losses(tf.constant([-1, 0, 1, 1]), logits("multiclass", members))
    assert float(losses[0]) == pytest.approx(-np.log(1e-7))
    assert np.isfinite(losses).all()


@pytest.mark.parametrize(
    ("task", "chosen", "want"),
    [
        ("binary", "balanced", {0: 40 / 60, 1: 2.0}),
        ("binary", {"1": 3.0}, {0: 1.0, 1: 3.0}),
        ("multiclass", "balanced", {0: 10 / 18, 1: 10 / 9, 2: 10 / 3}),
        ("multiclass", {"c": 5.0, "a": 0.5}, {0: 0.5, 1: 1.0, 2: 5.0}),
    ],
)
def test_a_class_has_its_weight(task: str, chosen: Any, want: dict[int, float]) -> None:
    label = tf.constant(LABELS[task])
    plain = made(task, **LINES[task]).losses(label, logits(task, 2))
    weighted = made(task, chosen, **LINES[task]).losses(label, logits(task, 2))
    np.testing.assert_allclose(weighted / plain, [want[each] for each in LABELS[task]], rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "lines", "weights", "told"),
    [
        ("binary", BINARY, {"one": 2.0}, "class_weights: the label has no value 'one'"),
        ("multiclass", CLASSES, {"A": 2.0}, "has no value 'A'; known are a, b, c"),
        ("regression", {names.LABEL_SCALE: [b"4", b"1", b"3.0", b"2.0"]}, None, "is missing in 1 of 4 training rows"),
        ("binary", {names.LABEL_COUNTS: [b"7 0", b"2 nan", b"1 1"]}, None, "is missing in 2 of 10 training rows"),
        ("binary", {names.LABEL_COUNTS: [b"7 0"]}, None, "is constant: all 7 training rows hold 0"),
        (
            "binary",
            {names.LABEL_COUNTS: [b"7 0", b"1 2"]},
            None,
            "and a binary label is 0 or 1",
        ),
    ],
)
def test_what_cannot_be_learned_is_told(task: str, lines: Any, weights: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        made(task, weights, **lines)
