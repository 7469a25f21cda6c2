"""Metrics of recorded answers, and intervals of differences, which respect units with several rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from sklearn.metrics import roc_auc_score

from components.base.config_section import Task
from components.data.examples import to_lists
from components.evaluator import intervals
from components.evaluator.columnar import Evaluation
from components.evaluator.config import EvaluationConfig
from components.evaluator.eval_config import eval_config
from components.evaluator.intervals import ScoreBins, Z
from components.evaluator.plan import EvaluationPlan
from components.evaluator.recorded import MEAN_LABEL, RecordedAnswers, differences
from components.features.expression import Label
from tests.support.data.tolerances import float64_sum, rounding

Floats = npt.NDArray[np.float64]
NEAR = float64_sum(1500)
"""Tolerance of sums over the rows, and of differences of such sums."""


class _Model(tf.Module):
    """A model whose signature is never called, because the answers are recorded."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serving_default(self, examples: Any) -> Any:
        return {"probability": tf.zeros_like(tf.strings.length(examples), tf.float32)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder, module = str(tmp_path_factory.mktemp("model")), _Model()
    tf.saved_model.save(module, folder, signatures={"serving_default": module.serving_default})
    return folder


def config(
    task: Task = "binary", weight: str | None = None, threshold: float | None = None, **section: Any
) -> tfma.EvalConfig:
    metric = {"binary": "auc", "multiclass": "accuracy", "regression": "mean_absolute_error"}[task]
    evaluation = EvaluationConfig.model_validate({"thresholds": {metric: {"min": 0}}, **section})
    plan = EvaluationPlan(evaluation=evaluation, task=task, labels=(Label("label"),), weight=weight)
    tfma_config = eval_config(plan, plan.labels[0], {} if threshold is None else {"": threshold})
    return tfma.utils.update_eval_config_with_defaults(tfma_config, has_baseline=False, rubber_stamp=True)


def answers(
    model: str,
    tfma_config: tfma.EvalConfig,
    labels: Floats,
    predictions: Floats,
    group: str | None = None,
    **columns: Any,
) -> RecordedAnswers:
    columns_by_name = {"label": labels.astype(np.float32), **columns}
    batch = to_lists(
        pa.RecordBatch.from_arrays([pa.array(column) for column in columns_by_name.values()], list(columns_by_name))
    )
    evaluation = Evaluation(
        tfma_config.SerializeToString(), {tfma_config.model_specs[0].name: model}, None, group=group
    )
    recorded = predictions.astype(np.float32).reshape(len(labels), -1)
    return RecordedAnswers(evaluation, batch, {"probability": recorded})


def draw_answers(count: int, seed: int, better: float = 1.0) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    scores = random.normal(0, 1, count)
    labels = (random.random(count) < 1 / (1 + np.exp(-better * scores))).astype(float)
    return labels, 1 / (1 + np.exp(-scores))


def test_metrics_and_slices_equal_those_of_the_recorded_predictions(model: str) -> None:
    labels, predictions = draw_answers(500, 1)
    cities = np.array([b"a", b"b"], object)[np.arange(500) % 2]
    tfma_config = config(slices=["city"])
    slice_metrics = answers(model, tfma_config, labels, predictions, city=cities).slices()
    by_slice = {tuple(measured.slice.items()): measured for measured in slice_metrics}
    for name, rows in ((), slice(None)), ((("city", "a"),), slice(0, None, 2)):
        y, p = labels[rows], predictions[rows].astype(np.float32).astype(float)
        metrics = by_slice[name].metrics
        assert by_slice[name].rows == len(y)
        assert metrics["binary_crossentropy"] == rounding(8).approx(-np.log(np.where(y == 1, p, 1 - p)).mean())
        assert metrics["binary_accuracy"] == NEAR.approx(((p > 0.5) == y).mean())
        assert by_slice[name].intervals["auc"][0] < metrics["auc"] < by_slice[name].intervals["auc"][1]


def test_versions_are_compared_at_their_own_thresholds(model: str) -> None:
    labels, predictions = draw_answers(500, 1)
    costs = {"cost": {"fp": 1, "fn": 5}}
    before, after = (
        answers(model, config(threshold=threshold, decide=costs), labels, predictions) for threshold in (0.75, 0.25)
    )
    expected = []
    for recorded, threshold in ((before, 0.75), (after, 0.25)):
        decided = predictions.astype(np.float32) >= threshold
        expected.append(np.where(labels == 1, 5 * ~decided, decided).mean())
        [overall] = recorded.slices()
        assert overall.metrics["cost"] == NEAR.approx(expected[-1])
        assert overall.metrics["recall"] == NEAR.approx(decided[labels == 1].mean())
        for name in ("cost", "recall", "precision"):
            assert overall.intervals[name][0] < overall.metrics[name] < overall.intervals[name][1]
    changes = differences(before, after, (np.arange(500), np.arange(500)), ["cost"])
    assert changes["cost"].value == NEAR.approx(expected[1] - expected[0])


@pytest.mark.parametrize("weight", [None, "weight"])
def test_intervals_count_predictions_of_exactly_the_threshold(model: str, weight: str | None) -> None:
    # The float32 nearest to 0.7 is less than 0.7, and sums of tenths are rounded.
    predictions, labels = np.where(np.arange(400) % 2, 0.7, 0.2), (np.arange(400) % 3 > 0).astype(float)
    section: dict[str, Any] = {"decide": {"threshold": 0.7}, "fairness": {"column": "city", "at": 0.7}}
    columns = {"city": np.array([b"a"] * 400, object), "weight": np.full(400, 0.1)}
    [overall, _] = answers(
        model, config(weight=weight, threshold=0.7, **section), labels, predictions, **columns
    ).slices()
    for name in ("precision", "recall", "positive_rate"):
        low, high = overall.intervals[name]
        assert low < overall.metrics[name] < high, name
    assert overall.metrics["positive_rate"] == NEAR.approx(0.5)


def test_metrics_of_groups_require_the_group_column(model: str) -> None:
    labels, predictions = draw_answers(500, 1)
    user, weights = np.arange(500) % 50, np.arange(500) % 3 + 1.0
    tfma_config = config(group="user", weight="weight", metrics=["auc", "gauc"])
    [metrics] = answers(model, tfma_config, labels, predictions, "user", weight=weights, user=user).slices()
    areas, sizes = [], []
    for user_id in range(50):
        y, p, w = (values[user == user_id] for values in (labels, predictions.astype(np.float32), weights))
        if 0 < y.sum() < len(y):
            areas.append(roc_auc_score(y, p, sample_weight=w))
            sizes.append(w.sum())
    assert metrics.metrics["gauc"] == NEAR.approx(np.average(areas, weights=sizes))
    [without] = answers(model, tfma_config, labels, predictions, "user", weight=weights).slices()
    assert np.isnan(without.metrics["gauc"])
    assert without.metrics["auc"] == metrics.metrics["auc"]
    recorded = answers(model, tfma_config, labels, predictions, "user", weight=weights, user=user)
    assert set(differences(recorded, recorded, (user, user), ["auc", "gauc"])) == {"auc", MEAN_LABEL}


def test_interval_of_independent_rows_equals_the_closed_formulas(model: str) -> None:
    tfma_config = config()
    (labels_before, p), (labels_after, q) = draw_answers(1500, 1, better=0.5), draw_answers(1500, 2, better=1.5)
    units = np.arange(1500), np.arange(1500, 3000)
    changes = differences(
        answers(model, tfma_config, labels_before, p),
        answers(model, tfma_config, labels_after, q),
        units,
        ["auc"],
    )
    assert set(changes) == {"auc", MEAN_LABEL}
    assert changes[MEAN_LABEL].value == NEAR.approx(labels_after.mean() - labels_before.mean())
    for name, half in (
        (MEAN_LABEL, Z * np.sqrt(labels_before.var() / 1500 + labels_after.var() / 1500)),
        ("auc", np.hypot(compute_auc_half_width(labels_before, p), compute_auc_half_width(labels_after, q))),
    ):
        low, high = changes[name].interval or (0, 0)
        assert (low + high) / 2 == NEAR.approx(changes[name].value)
        # A standard error that is estimated from 200 draws has a relative standard deviation of 5 %.
        assert (high - low) / 2 == pytest.approx(half, rel=0.2, abs=1e-3)
    assert (changes["auc"].interval or (0, 0))[0] > 0


def compute_auc_half_width(labels: Floats, scores: Floats) -> float:
    order = np.argsort(scores)
    bins = ScoreBins(np.ones(len(labels)), labels[order], scores[order])
    ranks = np.empty(len(labels))
    ranks[order] = np.arange(len(labels))
    positives = labels.sum()
    area = (ranks[labels == 1].sum() - positives * (positives - 1) / 2) / positives / (len(labels) - positives)
    low, high = intervals.compute_auc_interval(float(area), bins) or (0, 0)
    return (high - low) / 2


def test_rows_of_a_unit_are_drawn_together(model: str) -> None:
    tfma_config = config("regression")
    labels = np.repeat(np.random.default_rng(3).normal(10, 2, 400), 4)
    before, after = labels[:800], labels[800:]
    recorded_before, recorded_after = (
        answers(model, tfma_config, unit_labels, unit_labels + 1) for unit_labels in (before, after)
    )
    units = np.repeat(np.arange(400), 4)
    by_unit = differences(recorded_before, recorded_after, (units[:800], units[800:]), [])[MEAN_LABEL]
    by_row = differences(recorded_before, recorded_after, (np.arange(800), np.arange(800, 1600)), [])[MEAN_LABEL]
    widths = [high - low for low, high in (change.interval or (0, 0) for change in (by_unit, by_row))]
    # Four equal rows carry as much information as a single row, so the interval is twice as wide.
    assert widths[0] / widths[1] == pytest.approx(2, abs=0.5)
    assert widths[0] / 2 == pytest.approx(Z * np.sqrt(before.var() / 200 + after.var() / 200), rel=0.2, abs=1e-3)


def test_answers_to_the_same_units_are_compared_in_pairs(model: str) -> None:
    tfma_config = config("regression", weight="weight", metrics=["mean_absolute_error"])
    random = np.random.default_rng(4)
    labels, weights = random.normal(0, 100, 300), random.uniform(0.5, 2, 300)
    units = np.arange(300)
    recorded_before, recorded_after = (
        answers(model, tfma_config, labels, labels + error, weight=weights)
        for error in (np.full(300, 2.0), np.full(300, 3.0))
    )
    changes = differences(recorded_before, recorded_after, (units, units), ["mean_absolute_error"])
    assert changes["mean_absolute_error"].value == pytest.approx(1, abs=1e-4)
    low, high = changes["mean_absolute_error"].interval or (0, 0)
    assert high - low < 1e-3
    assert changes[MEAN_LABEL].interval == (0, 0)


def test_multiclass_answers_are_compared_by_accuracy_and_not_by_a_mean(model: str) -> None:
    tfma_config = config("multiclass")
    random = np.random.default_rng(5)
    labels, scores = random.integers(0, 3, (2, 400)).astype(float), random.dirichlet(np.ones(3), (2, 400))
    recorded_before, recorded_after = (
        answers(model, tfma_config, *labels_and_scores) for labels_and_scores in zip(labels, scores, strict=True)
    )
    changes = differences(
        recorded_before, recorded_after, (np.arange(400), np.arange(400)), ["accuracy", "crossentropy"]
    )
    accuracies = (scores.argmax(axis=2) == labels).mean(axis=1)
    assert changes.keys() == {"accuracy", "crossentropy"}
    assert changes["accuracy"].value == NEAR.approx(accuracies[1] - accuracies[0])
    [overall] = recorded_before.slices()
    assert overall.metrics["accuracy"] == NEAR.approx(accuracies[0])


def test_interval_of_two_independent_values() -> None:
    # The squares of the half widths of symmetrical intervals add up.
    low, high = intervals.compute_independent_interval(1.0, (0.7, 1.3), 3.0, (2.6, 3.4))
    assert (low, high) == (NEAR.approx(1.5), NEAR.approx(2.5))
    assert intervals.compute_independent_interval(0.9, (0.8, 0.95), 0.9, (0.8, 0.95)) == (
        NEAR.approx(-np.hypot(0.1, 0.05)),
        NEAR.approx(np.hypot(0.1, 0.05)),
    )
