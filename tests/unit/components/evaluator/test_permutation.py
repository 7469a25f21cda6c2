"""Importance of columns: the values for a linear model follow from its weights. Also tests areas under ROC curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from components.evaluator.importance import Estimate, Importance
from components.evaluator.permutation import _Areas, _Loss, choose_row_count
from components.evaluator.plan import EvaluationPlan
from tests.support.data.tolerances import float64_sum, rounding
from tests.support.runs import importance_runs
from tests.support.runs.importance_runs import WEIGHTS, WIDE
from tests.support.servers.in_fork_server import in_child

pytestmark = pytest.mark.both_lines
LOSS = rounding(16, largest=4.0, dtype=np.float64)
"""Tolerance of a row's loss: two logarithms and some products of values of up to 4."""


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Importance:
    folder = tmp_path_factory.mktemp("linear")
    importance: Importance = in_child(folder / "log", importance_runs.measure, folder, 4000, {"task": "regression"})
    return importance


def assert_near(estimate: Estimate | None, expected: float) -> None:
    """Check that the interval contains the expected value and is narrow."""
    assert estimate is not None
    assert estimate.interval is not None
    low, high = estimate.interval
    assert low <= expected <= high
    assert high - low < 0.2 * expected


@pytest.mark.extended
def test_importance_of_a_linear_models_columns_follows_from_its_weights(linear: Importance):
    overall = linear.slices[0]
    assert (linear.metric, linear.repeats, linear.unknown, overall.rows) == ("mean_squared_error", 2, None, 4000)
    assert overall.loss == pytest.approx(0.25, abs=0.025)
    assert [column.column for column in overall.columns][:2] == ["a", "b"]
    # Shuffling increases the squared error by weight² · E(value - shuffled value)². The mean variance of `a` over the
    # two groups is (1 + 2²) / 2.
    expected = {"a": WEIGHTS["a"] ** 2 * 2 * (1 + WIDE**2) / 2, "b": 2.0}
    for name, value in expected.items():
        column_importance = linear.find(name)
        assert column_importance is not None
        assert_near(column_importance.loss, value)
        assert column_importance.auc is None
    importance_of_a = linear.find("a")
    assert importance_of_a is not None
    assert_near(importance_of_a.share, expected["a"] / (expected["a"] + expected["b"]))
    for name in ("unused", "group"):
        unused = linear.find(name)
        assert unused is not None
        assert (unused.loss, unused.share) == (Estimate(0.0, (0.0, 0.0)), Estimate(0.0, (0.0, 0.0)))


@pytest.mark.extended
def test_shuffled_values_of_a_slice_come_from_all_rows(linear: Importance):
    by_slice = {slice_importance.slice.get("group"): slice_importance for slice_importance in linear.slices}
    assert set(by_slice) == {None, "wide", "narrow"}
    for group, variance in (("wide", WIDE**2), ("narrow", 1.0)):
        assert by_slice[group].rows == pytest.approx(2000, abs=200)
        losses = {column.column: column.loss for column in by_slice[group].columns}
        assert_near(losses["a"], WEIGHTS["a"] ** 2 * (variance + (1 + WIDE**2) / 2))
        assert_near(losses["b"], 2.0)
        assert all(column.share is None for column in by_slice[group].columns)


@pytest.mark.extended
def test_typical_values_are_stored_and_importance_is_read_back(linear: Importance):
    assert linear.typical["a"] == pytest.approx(0, abs=0.1)
    assert linear.typical["group"] in ("wide", "narrow")
    assert Importance.from_json(linear.to_json()) == linear


def test_rows_are_weighted(tmp_path: Path):
    fields = {"task": "regression", "weight": "weight"}
    importance: Importance = in_child(tmp_path / "log", importance_runs.measure, tmp_path, 4000, fields)
    importance_of_a = importance.find("a")
    assert importance_of_a is not None
    # Only rows of the group `wide` have a weight above 0, but their shuffled values come from all rows.
    assert_near(importance_of_a.loss, WEIGHTS["a"] ** 2 * (WIDE**2 + (1 + WIDE**2) / 2))
    assert [slice_importance.slice for slice_importance in importance.slices] == [{}, {"group": "wide"}]


def test_predictions_that_are_not_probabilities_are_reported(tmp_path: Path):
    importance: Importance = in_child(tmp_path / "log", importance_runs.measure, tmp_path, 100, {"task": "binary"})
    assert importance.unknown == "the binary_crossentropy of a row is not a number"
    assert importance.slices == ()


def test_decrease_of_the_area_equals_scikit_learns():
    random = np.random.default_rng(4)
    label = random.random(500) < 0.3
    before = label + random.normal(size=500)
    after = [np.round(label * 0.4 + random.normal(size=500), 1) for _ in range(3)]
    weights = random.uniform(0.5, 2, 500)
    decrease = _Areas(label, before, weights).decrease(after)
    area, *areas_after = (roc_auc_score(label, scores, sample_weight=weights) for scores in (before, *after))
    assert decrease is not None
    assert decrease.interval is not None
    assert decrease.value == float64_sum(500).approx(area - np.mean(areas_after))
    assert decrease.interval[0] < decrease.value < decrease.interval[1]
    # Equal predictions do not decrease the area, and the interval has width 0.
    assert _Areas(label, before, weights).decrease([before]) == Estimate(0.0, (0.0, 0.0))


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ({"task": "regression"}, "mean_squared_error", [1.0, 4.0]),
        (
            {"task": "regression", "loss": "poisson"},
            "poisson_deviance",
            [2 * (np.log(0.5) + 1), 2 * (3 * np.log(3) - 2)],
        ),
        (
            {"task": "regression", "loss": "quantile", "quantiles": (0.25, 0.75)},
            "quantile_loss",
            [(0.25 * 0 + 0.25 * 1) / 2, (0.25 * 3 + 0.75 * 2) / 2],
        ),
    ],
)
def test_losses_of_regressions_are_computed_per_row(fields: dict[str, Any], name: str, expected: list[float]):
    loss = _Loss(plan(fields))
    assert loss.name == name
    quantiles = np.array([[1.0, 2.0], [0.0, 1.0]])
    losses = loss.compute(np.array([1.0, 3.0]), np.array([2.0, 1.0]), {"quantiles": quantiles})
    LOSS.assert_close(losses, expected)


def test_losses_of_classifications_are_computed_per_row():
    loss = _Loss(plan({"task": "multiclass"}))
    shares = np.array([[0.25, 0.75], [0.25, 0.75], [0.0, 1.0]])
    # The model does not know the class 2.
    LOSS.assert_close(loss.compute(np.array([1, 2, 0]), shares, {}), [-np.log(0.75), -np.log(1e-7), -np.log(1e-7)])
    loss = _Loss(plan({"task": "binary"}))
    losses = loss.compute(np.array([1, 0, 1]), np.array([0.25, 0.25, 1.5]), {})
    LOSS.assert_close(losses, [-np.log(0.25), -np.log(0.75), np.nan])


@pytest.mark.parametrize(
    ("columns", "fields", "rows"),
    [
        (14, {}, 10_000),
        (28, {}, 10_000),
        (100, {}, 800),
        (126, {}, 503),
        (127, {}, 0),
        (127, {"max_importance": {"c1": 0.5}}, 500),
        (1000, {"importance_rows": 3000}, 3000),
        (5, {"importance_rows": 0}, 0),
    ],
)
def test_wide_tables_have_smaller_samples(columns: int, fields: dict[str, Any], rows: int):
    evaluation_plan = plan({"task": "binary", "feature_columns": [f"c{at}" for at in range(columns)]}, **fields)
    assert choose_row_count(evaluation_plan, evaluation_plan.labels[0]) == rows


def plan(fields: dict[str, Any], **section: Any) -> EvaluationPlan:
    return EvaluationPlan.model_validate(
        {"evaluation": {"thresholds": {"auc": {"min": 0}}, **section}, "labels": [{"text": "label"}], **fields}
    )


@pytest.mark.extended
def test_importance_of_a_slow_model_is_measured_on_fewer_rows_or_not_at_all(tmp_path: Path) -> None:
    """A limit of 10 ns leaves no row, and `max_importance` needs 500 rows."""
    fast = {"evaluation": {"importance_seconds": 1e-8, "thresholds": {"mean_squared_error": {"max": 9}}}}
    fields: dict[str, Any] = {"task": "regression", **fast}
    (tmp_path / "none").mkdir()
    importance: Importance = in_child(tmp_path / "log", importance_runs.measure, tmp_path / "none", 4000, fields)
    assert not importance.slices
    assert importance.unknown is not None
    assert "raise evaluation.importance_seconds" in importance.unknown
    fast["evaluation"]["max_importance"] = {"a": 0.5}
    (tmp_path / "few").mkdir()
    few: Importance = in_child(tmp_path / "log", importance_runs.measure, tmp_path / "few", 4000, fields)
    # Rows are permuted less often before fewer rows are used.
    assert (few.unknown, few.slices[0].rows, few.repeats) == (None, 500, 1)
    assert few.slices[0].columns[0].column == "a"
