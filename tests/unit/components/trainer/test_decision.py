"""Tests that the threshold of a decision is the best one, and that no threshold that was left out is better."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from pydantic import TypeAdapter, ValidationError
from sklearn import metrics

from components.base.errors import InputError
from components.features.expression import Label
from components.results.decision import Decision, Decisions
from components.results.decision_goal import Decide, DecisionGoal
from components.trainer.decision import add_classes, choose, choose_threshold
from tests.support.data.tolerances import float64_sum

ROWS = 300
SUM = float64_sum(ROWS)
GOALS: dict[str, Any] = {
    "f1": "f1",
    "precision": {"precision": 0.7},
    "recall": {"recall": 0.8},
    "cost": {"cost": {"fp": 1, "fn": 7}},
    "other cost": {"cost": {"fp": 6.5, "fn": 0.5}},
}
Scores = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


def goal(value: Any) -> DecisionGoal:
    chosen: DecisionGoal = TypeAdapter(Decide).validate_python(value)
    return chosen


def draw(seed: int, ties: bool, weighted: bool) -> tuple[Scores, Flags, Any]:
    """Return probabilities, labels and weights."""
    random = np.random.default_rng(seed)
    probabilities = random.beta(1, 3, ROWS).astype(np.float32)
    if ties:
        probabilities = np.round(probabilities, 1).astype(np.float32)
    label = random.random(ROWS) < probabilities
    weight = random.choice([0.0, 0.5, 2.0], ROWS).astype(np.float32) if weighted else None
    return probabilities, label, weight


def measure(threshold: float, probabilities: Scores, label: Flags, weight: Any, costs: Any) -> dict[str, float]:
    """Return scikit-learn's metrics of the decisions at a threshold, and the mean cost."""
    answer = probabilities >= np.float32(threshold)
    common = {"sample_weight": weight, "zero_division": 0.0}
    values = {
        "precision": metrics.precision_score(label, answer, **common),
        "recall": metrics.recall_score(label, answer, **common),
        "f1": metrics.f1_score(label, answer, **common),
    }
    if costs:
        wrong = np.where(label, costs.fn * ~answer, costs.fp * answer)
        values["cost"] = float(np.average(wrong, weights=weight))
    return values


def measure_by_hand(threshold: float, probabilities: Scores, label: Flags, weight: Any, costs: Any) -> dict[str, float]:
    """Return the same as `measure`, fast enough for every threshold."""
    answer, weights = probabilities >= np.float32(threshold), np.ones(len(label)) if weight is None else weight
    tp, fp, fn = (float(weights[rows].sum()) for rows in (answer & label, answer & ~label, ~answer & label))
    values = {"precision": tp / (tp + fp or 1), "recall": tp / (tp + fn), "f1": 2 * tp / (2 * tp + fp + fn)}
    return values | ({"cost": (costs.fp * fp + costs.fn * fn) / float(weights.sum())} if costs else {})


def rank(chosen: DecisionGoal, values: dict[str, float]) -> tuple[float, float]:
    """Return a number that is greater for better metrics, and a second one that decides between equal ones."""
    precision, recall = values["precision"], values["recall"]
    if chosen.cost:
        return -values["cost"], 0.0
    if chosen.f1:
        return values["f1"], 0.0
    if chosen.precision is not None:
        return (recall, precision) if precision >= chosen.precision - 1e-9 else (-math.inf, precision)
    return (precision, recall) if recall >= (chosen.recall or 0) - 1e-9 else (-math.inf, recall)


@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_no_threshold_is_better(name: str, ties: bool, weighted: bool) -> None:
    chosen_goal = goal(GOALS[name])
    for seed in range(2):
        probabilities, label, weight = draw(seed, ties, weighted)
        rows = (probabilities, label, weight, chosen_goal.cost)
        chosen = choose_threshold(chosen_goal, probabilities, label, weight)
        values = measure(chosen.threshold, *rows)
        assert chosen.metrics == SUM.approx(values)
        assert chosen.is_reached
        counted = np.ones(ROWS, bool) if weight is None else weight > 0
        assert (chosen.rows, chosen.positives) == (counted.sum(), label[counted].sum())
        # All decisions that any threshold can make, also none for 1.
        every = [*np.unique(probabilities).tolist(), 1.5]
        best = max(rank(chosen_goal, measure_by_hand(threshold, *rows)) for threshold in every)
        assert rank(chosen_goal, values) == SUM.approx(best)


@pytest.mark.parametrize("bound", [0.35, 0.5, 0.8])
def test_bounds_agree_with_the_curve_of_scikit_learn(bound: float) -> None:
    probabilities, label, weight = draw(7, ties=False, weighted=True)
    # The last point of the curve does not belong to a threshold.
    precision, recall, _ = metrics.precision_recall_curve(label, probabilities, sample_weight=weight)
    by_precision = choose_threshold(goal({"precision": bound}), probabilities, label, weight).metrics
    assert by_precision["recall"] == SUM.approx(recall[:-1][precision[:-1] >= bound].max())
    by_recall = choose_threshold(goal({"recall": bound}), probabilities, label, weight).metrics
    assert by_recall["precision"] == SUM.approx(precision[:-1][recall[:-1] >= bound].max())


def test_threshold_is_in_the_middle_between_two_probabilities() -> None:
    probabilities, label = np.array([0.2, 0.4, 0.8, 0.9], np.float32), np.array([False, False, True, True])
    chosen = choose_threshold(goal("f1"), probabilities, label)
    assert chosen.threshold == pytest.approx(0.6, abs=1e-7)
    assert chosen.metrics == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    # The threshold is exactly a float32, in which the exported graph compares.
    assert chosen.threshold == float(np.float32(chosen.threshold))


@pytest.mark.parametrize("value", [0.0, 0.3, float(np.nextafter(np.float32(1), np.float32(0))), 1.0])
def test_all_scores_are_equal(value: float) -> None:
    probabilities, label = np.full(10, value, np.float32), np.arange(10) < 3
    for fn, expected in ((10.0, True), (0.1, False)):
        chosen = choose_threshold(goal({"cost": {"fp": 1, "fn": fn}}), probabilities, label)
        assert (probabilities >= np.float32(chosen.threshold)).all() == expected
        assert chosen.metrics["cost"] == pytest.approx(0.7 if expected else 0.3 * fn, abs=1e-12)
    f1 = choose_threshold(goal("f1"), probabilities, label)
    assert f1.metrics == pytest.approx({"precision": 0.3, "recall": 1.0, "f1": 0.6 / 1.3}, abs=1e-12)


def test_neighbouring_float32_are_divided() -> None:
    low = np.float32(0.1)
    high = np.nextafter(low, np.float32(1))
    chosen = choose_threshold(goal("f1"), np.array([low, high], np.float32), np.array([False, True]))
    assert chosen.threshold == float(high)


def test_one_positive_row(caplog: pytest.LogCaptureFixture) -> None:
    random = np.random.default_rng(0)
    probabilities, label = random.random(50).astype(np.float32), np.zeros(50, bool)
    label[17] = True
    above = int((probabilities >= probabilities[17]).sum())
    chosen = choose_threshold(goal({"recall": 0.5}), probabilities, label)
    expected = {"precision": 1 / above, "recall": 1.0, "f1": 2 / (above + 1)}
    assert chosen.metrics == SUM.approx(expected)
    assert (chosen.rows, chosen.positives) == (50, 1)
    assert "the threshold depends on only 1 of 50 rows with the rarer label" in caplog.text


def test_precision_that_no_threshold_reaches_is_the_highest_one(caplog: pytest.LogCaptureFixture) -> None:
    probabilities, label = np.array([0.1, 0.2, 0.3, 0.4], np.float32), np.array([True, False, True, False])
    chosen = choose_threshold(goal({"precision": 0.9}), probabilities, label)
    # The thresholds 0.25 and 0.05 have the highest precision, 1/2; 0.05 has the higher recall.
    assert chosen.metrics == pytest.approx({"precision": 0.5, "recall": 1.0, "f1": 2 / 3}, abs=1e-12)
    assert not chosen.is_reached
    assert "no threshold reaches it; the highest precision is 0.5" in caplog.text
    assert "highest recall at a precision of at least 0.9, which no threshold reaches; on 4 valid" in str(chosen)


@pytest.mark.parametrize("label", [np.zeros(5, bool), np.ones(5, bool)])
def test_rows_of_one_label_are_refused_unless_the_threshold_is_given(label: Flags) -> None:
    probabilities = np.linspace(0, 1, 5, dtype=np.float32)
    with pytest.raises(InputError, match=rf"received {label.sum()} of 5 with label 1 of data\.label"):
        choose_threshold(goal("f1"), probabilities, label)
    # A row without a weight does not count.
    mixed, weight = np.array([True, False, True, False, True]), np.array([0, 0, 0, 1, 0], np.float32)
    with pytest.raises(InputError, match="received 0 of 1 with label 1"):
        choose_threshold(goal("f1"), probabilities, mixed, weight)
    chosen = choose_threshold(goal({"threshold": 0.3}), probabilities, label)
    assert (chosen.threshold, chosen.metrics) == (float(np.float32(0.3)), {})


@pytest.mark.parametrize("threshold", [0.001, 0.25, 0.3, 0.999])
def test_given_threshold_is_measured(threshold: float) -> None:
    probabilities, label, weight = draw(1, ties=True, weighted=True)
    probabilities[:20] = np.float32(0.3)
    chosen = choose_threshold(goal({"threshold": threshold}), probabilities, label, weight)
    assert chosen.threshold == float(np.float32(threshold))
    assert chosen.metrics == SUM.approx(measure(threshold, probabilities, label, weight, None))


def test_every_label_has_a_threshold_and_a_class() -> None:
    labels = (Label("c", "click"), Label("b", "buy"))
    probabilities, values = zip(*(draw(seed, ties=False, weighted=False)[:2] for seed in range(2)), strict=True)
    columns = {
        label.add_name("probability"): tf.constant(column[:, None])
        for label, column in zip(labels, probabilities, strict=True)
    }
    decisions = choose(goal("f1"), labels, columns, np.stack(values, axis=1).astype(np.int64))
    assert list(decisions.labels) == ["click", "buy"]
    for label, column, value in zip(labels, probabilities, values, strict=True):
        assert decisions.labels[label.name] == choose_threshold(goal("f1"), column, value)
    outputs = add_classes(lambda logits: columns, decisions)(tf.zeros([ROWS, 2]))
    assert outputs.keys() == {*columns, "class_click", "class_buy"}
    for label, column in zip(labels, probabilities, strict=True):
        answer = outputs[f"class_{label.name}"]
        assert (answer.dtype, answer.shape) == (tf.int64, (ROWS, 1))
        limit = np.float32(decisions.labels[label.name].threshold)
        np.testing.assert_array_equal(answer.numpy()[:, 0], column >= limit)
    assert Decisions.from_json(decisions.to_json()) == decisions


def test_threshold_without_rows() -> None:
    decisions = choose(goal({"threshold": 0.7}), [Label("y")])
    assert decisions.labels == {"": Decision(float(np.float32(0.7)), "threshold 0.7")}
    outputs = add_classes(lambda logits: {"probability": logits}, decisions)
    limit = np.float32(0.7)
    rows = tf.constant([[np.nextafter(limit, np.float32(0))], [limit]])
    assert outputs(rows)["class"].numpy().tolist() == [[0], [1]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("f2", "expected f1, {precision: 0.9}"),
        ({}, "expected one of f1, precision, recall, cost or threshold, received none of them"),
        ({"precision": 0.9, "recall": 0.8}, "received precision and recall"),
        ({"precision": 1.5}, "less than or equal to 1"),
        ({"threshold": 1}, "less than 1"),
        ({"cost": {"fp": 1}}, "fn"),
        ({"cost": {"fp": 0, "fn": 1}}, "greater than 0"),
        ({"presicion": 0.9}, "presicion"),
    ],
)
def test_goal_that_is_not_one_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        goal(value)


@pytest.mark.parametrize("value", [*GOALS.values(), {"threshold": 0.3}])
def test_goal_is_restored_from_json(value: Any) -> None:
    assert DecisionGoal.model_validate_json(goal(value).model_dump_json()) == goal(value)
