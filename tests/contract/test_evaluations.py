"""Every evaluation: correct metrics, a verdict in a file, and a blessing as TFX's Evaluator sets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from sklearn import metrics

from components.base.config_section import Task
from components.evaluator import plot_data
from components.evaluator.importance import FILE, Importance
from components.evaluator.plot_data import ModelPlots
from tests.support.data.tolerances import float64_sum
from tests.support.runs import evaluator_runs
from tests.support.runs.evaluator_runs import Evaluated
from tests.support.servers.in_fork_server import in_child

pytestmark = [pytest.mark.both_lines, pytest.mark.extended]

SECTION = {
    "metrics": ["auc", "binary_accuracy", "calibration", "expected_calibration_error", "gauc", "ndcg_at_5"],
    "group": "user",
    "thresholds": {"auc": {"min": 0.7, "worse_by": 0.05}, "gauc": {"worse_by": 0.01}},
    "slice_thresholds": {"group": {"auc": {"min": 0.6}}, "place = 1": {"binary_accuracy": {"min": 0.9}}},
    "fairness": {"column": "group", "at": 0.4, "max_gap": {"positive_rate": 0.01}},
}
WEIGHT, BEFORE = 0.9, 0.5
SUM = float64_sum(evaluator_runs.ROWS)
"""Tolerance of sums over the rows, in groups or not."""


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """Return a model with a baseline, blessed by force, because the rates of its groups differ too much."""
    return run(tmp_path_factory.mktemp("compared"), SECTION, BEFORE, "they really are")


OTHER_TASKS = ("multiclass", "regression")


@pytest.fixture(scope="module", params=OTHER_TASKS)
def other_task(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """Return the same models, evaluated as models of another task."""
    metric = {"multiclass": "accuracy", "regression": "mean_absolute_error"}[request.param]
    section = {"slices": ["group"], "thresholds": {metric: {"min": 0.0}}}
    return run(tmp_path_factory.mktemp(request.param), section, BEFORE, task=request.param)


def run(
    folder: Path,
    section: dict[str, Any],
    before: float | None = None,
    force: str | None = None,
    task: Task = "binary",
) -> Evaluated:
    result = in_child(folder / "log", evaluator_runs.evaluate, folder, section, WEIGHT, before, force, task)
    assert isinstance(result, Evaluated)
    return result


def metrics_of_slice(rows: Any, weight: float, rates: bool) -> dict[str, float]:
    """Return the metrics of a slice, computed without TFMA; rates only for the whole split and for groups."""
    table = evaluator_runs.columns()
    label, probability = table["label"][rows], weight * table["score"][rows].astype(float)
    positive, bins = probability > 0.4, np.minimum((probability * 10).astype(int), 9)
    off = [abs((probability - label)[bins == number].sum()) for number in range(10)]
    actual = {
        "binary_accuracy": float(((probability > 0.5) == label).mean()),
        "expected_calibration_error": sum(off) / len(label),
    }
    if rates:
        actual["positive_rate"] = float(positive.mean())
        actual["false_positive_rate"] = float(positive[label == 0].mean())
    actual |= mean_over_users(table["user"][rows], label, probability)
    if label.any():
        actual["auc"] = float(metrics.roc_auc_score(label, probability))
        actual["calibration"] = float(probability.sum() / label.sum())
    if rates and label.any():
        actual["false_negative_rate"] = float(1 - positive[label == 1].mean())
    return actual


def mean_over_users(user: Any, label: Any, probability: Any) -> dict[str, float]:
    """Return the mean metrics over the users for whom they are defined."""
    areas, weights, gains = [], [], []
    for group in np.unique(user[label == 1]):
        y, p = label[user == group], probability[user == group]
        gains.append(metrics.ndcg_score([y], [p], k=5) if len(y) > 1 else 1.0)
        if not y.all():
            areas.append(metrics.roc_auc_score(y, p))
            weights.append(len(y))
    gauc = {"gauc": float(np.average(areas, weights=weights))} if areas else {}
    return {**gauc, "ndcg_at_5": float(np.mean(gains))} if gains else {}


def test_metrics_of_both_models_and_every_slice(comparison: Evaluated) -> None:
    group, place = (evaluator_runs.columns()[name] for name in ("group", "place"))
    requested = {
        (): np.full(evaluator_runs.ROWS, True),
        **{(("group", value),): group == value for value in "abc"},
        (("place", "1"),): place == 1,
    }
    assert {tuple(entry.slice.items()) for entry in comparison.verdict.slices} == set(requested)
    assert not comparison.verdict.slices[0].slice
    for entry in comparison.verdict.slices:
        rows = requested[tuple(entry.slice.items())]
        assert entry.rows == rows.sum()
        # The area under the curve is summed over thresholds, not over all rows.
        rates = "place" not in entry.slice
        assert entry.metrics == pytest.approx(metrics_of_slice(rows, WEIGHT, rates), abs=1e-3)
        assert entry.baseline == pytest.approx(metrics_of_slice(rows, BEFORE, rates), abs=1e-3)


def test_verdict_has_a_check_per_bound(comparison: Evaluated) -> None:
    checks = [(check.metric, *check.slice.values(), check.passed, check.judged) for check in comparison.verdict.checks]
    assert checks == [
        ("auc", True, True),
        ("auc", True, True),
        ("gauc", True, True),
        ("auc", "a", True, True),
        ("auc", "b", True, True),
        ("auc", "c", True, False),
        ("binary_accuracy", "1", True, False),
        ("gap of positive_rate", "any two", False, True),
        ("binary_crossentropy", True, True),
    ]
    why = [check.why for check in comparison.verdict.checks]
    assert why[5:7] == ["not judged: all labels are alike", "not judged: 10 rows of 50"]


def test_forced_blessing_has_its_reason(comparison: Evaluated) -> None:
    assert (comparison.verdict.blessed, comparison.verdict.forced) == (True, "they really are")
    assert comparison.marks == ["BLESSED"]
    assert comparison.blessing["blessed"] == 1
    assert comparison.blessing["forced"] == "they really are"


def test_blessing_has_tfx_properties_of_both_models(comparison: Evaluated) -> None:
    assert (comparison.blessing["current_model_id"], comparison.blessing["baseline_model_id"]) == (7, 5)
    assert Path(comparison.blessing["current_model"]).name == "model"
    assert Path(comparison.blessing["baseline_model"]).name == "baseline"
    assert (comparison.blessing["blessed"], comparison.validated) == (1, True)


def test_model_that_fails_a_check_is_not_blessed(tmp_path: Path) -> None:
    result = run(tmp_path, {"metrics": ["auc"], "thresholds": {"auc": {"min": 0.99, "worse_by": 0.1}}})
    assert [(check.passed, check.why) for check in result.verdict.checks] == [
        (False, None),
        (True, "no earlier blessed model"),
        (True, result.verdict.checks[-1].why),
    ]
    assert (result.verdict.blessed, result.verdict.forced, result.marks) == (False, None, ["NOT_BLESSED"])
    assert (result.blessing["blessed"], result.blessing["forced"], result.blessing["baseline_model_id"]) == (0, "", 0)
    assert all(not entry.baseline for entry in result.verdict.slices)
    validation = tfma.load_validation_result(str(tmp_path / "evaluation"))
    [of_slice] = validation.metric_validations_per_slice
    [failure] = of_slice.failures
    assert (validation.validation_ok, len(of_slice.slice_key.single_slice_keys)) == (False, 0)
    assert failure.metric_key.name == "auc"
    assert failure.message.startswith("auc: expected at least 0.99, received ")


def test_leakage_and_a_model_that_is_worse_than_a_constant(tmp_path: Path) -> None:
    table = evaluator_runs.leaking_columns()
    features = [name for name in table if name != "label"]
    section = {"metrics": ["auc"], "thresholds": {"auc": {"min": 0.0}}, "leakage": "refuse"}
    arguments = (tmp_path, section, WEIGHT, None, None, "binary", table, features)
    result = in_child(tmp_path / "log", evaluator_runs.evaluate, *arguments)
    threshold, constant, *leaks = result.verdict.checks
    assert (result.verdict.blessed, result.marks, threshold.passed) == (False, ["NOT_BLESSED"], True)
    label, answer = table["label"], (np.float32(WEIGHT) * table["score"]).astype(float)
    assert (constant.metric, constant.passed, constant.rows) == ("binary_crossentropy", False, len(label))
    assert constant.value == pytest.approx(metrics.log_loss(label, answer), rel=1e-5, abs=1e-6)
    prior = metrics.log_loss(label, np.full(len(label), label.mean()))
    assert constant.bound == f"below the constant's {prior:.6g} beyond the interval"
    assert result.verdict.slices[0].constant["auc"].value == 0.5
    # The score predicts the label well, but not perfectly.
    assert [(leak.metric, leak.passed) for leak in leaks] == [
        ("leakage of state", False),
        ("leakage of refund", False),
        ("leakage of number", False),
    ]
    assert ["alone predicts" in leaks[0].why, "a value in" in leaks[1].why, "order" in leaks[2].why] == [True] * 3


def test_model_that_depends_on_one_column_is_refused(tmp_path: Path) -> None:
    section = {"metrics": ["auc"], "slices": ["group"], "thresholds": {"auc": {"min": 0.0}}, "constant": "warn"}
    bounds = {"score": 0.9, "group": 0.1}
    arguments = (tmp_path, {**section, "max_importance": bounds}, WEIGHT, None, None, "binary", None, [*bounds])
    result = in_child(tmp_path / "log", evaluator_runs.evaluate, *arguments)
    _, score, group = result.verdict.checks
    assert (result.verdict.blessed, result.marks) == (False, ["NOT_BLESSED"])
    # The model reads only the score.
    assert (score.metric, score.passed, score.value) == ("importance of score", False, 1.0)
    assert (group.metric, group.passed, group.value) == ("importance of group", True, 0.0)
    importance = Importance.from_json((tmp_path / "evaluation" / FILE).read_text())
    assert [entry.slice for entry in importance.slices] == [{}, *({"group": value} for value in "abc")]
    # All labels in group c are equal.
    assert [entry.columns[0].auc is None for entry in importance.slices] == [False, False, False, True]
    label, answer = evaluator_runs.columns()["label"], answers(WEIGHT)[1]
    assert importance.slices[0].loss == pytest.approx(metrics.log_loss(label, answer), rel=1e-5, abs=1e-6)
    area = importance.slices[0].columns[0].auc
    assert area is not None
    # Scores of other rows are uninformative.
    assert area.value == pytest.approx(metrics.roc_auc_score(label, answer) - 0.5, abs=0.06)


def answers(weight: float) -> tuple[Any, Any]:
    """Return labels and predictions of a model."""
    table = evaluator_runs.columns()
    return table["label"], (np.float32(weight) * table["score"]).astype(float)


def models(result: Evaluated) -> list[tuple[float, ModelPlots, dict[str, float]]]:
    """Yield weight, plots and metrics of both models."""
    whole = result.verdict.slices[0]
    assert result.plots.baseline is not None
    return [(WEIGHT, result.plots.candidate, whole.metrics), (BEFORE, result.plots.baseline, whole.baseline)]


def test_curves_match_the_predictions(comparison: Evaluated) -> None:
    for weight, drawn, measured in models(comparison):
        label, probability = answers(weight)
        buckets = drawn.predictions
        assert plot_data.area(plot_data.roc(buckets)) == pytest.approx(measured["auc"], abs=1e-3)
        false, recall, _ = metrics.roc_curve(label, probability, drop_intermediate=False)
        for x, y in plot_data.roc(buckets):
            # Points of the drawn curve lie on the exact curve, except for rows in the same bucket.
            assert np.hypot(false - x, recall - y).min() < 0.02
        precision, recall, _ = metrics.precision_recall_curve(label, probability)
        for x, y in plot_data.precision_recall(buckets)[20:]:
            assert np.hypot(recall - x, precision - y).min() < 0.02


def test_calibration_has_the_mean_prediction_and_all_rows(comparison: Evaluated) -> None:
    for weight, drawn, _ in models(comparison):
        label, probability = answers(weight)
        groups = plot_data.calibration(drawn.predictions, 10)
        assert len(groups) == 10
        assert sum(group.rows for group in groups) == evaluator_runs.ROWS
        assert sum(group.labels for group in groups) == label.sum()
        assert sum(group.predictions for group in groups) == SUM.approx(probability.sum())


def test_confusion_matrix_at_the_threshold(comparison: Evaluated) -> None:
    for weight, drawn, measured in models(comparison):
        label, probability = answers(weight)
        counts = np.array(plot_data.at_threshold(drawn.predictions).counts)
        assert counts.tolist() == metrics.confusion_matrix(label, probability >= 0.5, labels=[0, 1]).tolist()
        assert np.trace(counts) / evaluator_runs.ROWS == SUM.approx(measured["binary_accuracy"])


def test_every_metric_is_in_its_interval(comparison: Evaluated, other_task: Evaluated) -> None:
    whole = comparison.verdict.slices[0]
    # The calibration error adds absolute values and is biased upwards, so an interval would be wrong.
    assert set(whole.intervals) == set(whole.metrics) - {"expected_calibration_error"}
    assert set(other_task.verdict.slices[0].intervals) == set(other_task.verdict.slices[0].metrics)
    for entry in (*comparison.verdict.slices, *other_task.verdict.slices):
        assert all(low <= entry.metrics[name] <= high for name, (low, high) in entry.intervals.items())
        assert all(low < high for low, high in entry.intervals.values())


def test_fewer_rows_have_wider_intervals(comparison: Evaluated) -> None:
    wide = {
        entry.slice.get("group"): np.subtract(*entry.intervals["positive_rate"][::-1])
        for entry in comparison.verdict.slices
        if "place" not in entry.slice
    }
    assert wide[None] < wide["a"] < wide["b"]


def test_other_tasks_have_their_own_plots(other_task: Evaluated) -> None:
    for weight, drawn, measured in models(other_task):
        label, answer = answers(weight)
        if other_task.plots.task == "multiclass":
            assert drawn.confusion is not None
            assert drawn.confusion.classes == (0, 1)
            counts = np.array(drawn.confusion.counts)
            assert counts.tolist() == metrics.confusion_matrix(label, answer > 0.5, labels=[0, 1]).tolist()
            assert np.trace(counts) / counts.sum() == SUM.approx(measured["accuracy"])
            continue
        residuals = label - answer
        assert sum(bin_.rows for bin_ in drawn.predictions) == evaluator_runs.ROWS
        assert sum(bin_.rows for bin_ in drawn.residuals) == evaluator_runs.ROWS
        assert sum(bin_.predictions for bin_ in drawn.residuals) == SUM.approx(residuals.sum())
        assert sum(bin_.predictions for bin_ in drawn.predictions) == SUM.approx(answer.sum())
        assert sum(bin_.labels for bin_ in drawn.predictions) == label.sum()
        for share in (0.05, 0.5, 0.95):
            assert plot_data.quantile(drawn.residuals, share) == pytest.approx(np.quantile(residuals, share), abs=0.02)


def test_interval_of_a_regressions_error(other_task: Evaluated) -> None:
    label, answer = answers(WEIGHT)
    errors = {
        "accuracy": ((answer > 0.5) == label).astype(float),
        "crossentropy": -np.log(np.where(label == 1, answer, 1 - answer)),
        "mean_absolute_error": np.abs(label - answer),
        "mean_squared_error": (label - answer) ** 2,
    }
    for name, (low, high) in other_task.verdict.slices[0].intervals.items():
        half = 1.96 * errors[name].std(ddof=1) / np.sqrt(evaluator_runs.ROWS)
        mean = errors[name].mean()
        assert (low, high) == pytest.approx((mean - half, mean + half), rel=0.02, abs=1e-4)


SEVERAL = {
    "metrics": ["auc", "buy/brier_score"],
    "thresholds": {"auc": {"min": 0.6}, "buy/auc": {"min": 0.99}},
    "slices": ["group"],
}


def several_labels() -> dict[str, Any]:
    table = evaluator_runs.columns()
    click = table.pop("label")
    return {**table, "label_click": click, "label_buy": click * (table["score"] > 0.6)}


@pytest.fixture(scope="module", params=[True, False], ids=["columns", "TFX"])
def several(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """Evaluate a model of two labels that passes for only one of them, with its baseline."""
    folder = tmp_path_factory.mktemp("several")
    labels, columns = ("click", "buy"), several_labels()
    arguments = (folder, SEVERAL, WEIGHT, BEFORE, None, "binary", columns, None, labels, request.param)
    result = in_child(folder / "log", evaluator_runs.evaluate, *arguments)
    assert isinstance(result, Evaluated)
    return result


def test_each_label_has_its_metrics_and_its_bounds(several: Evaluated) -> None:
    table = several_labels()
    for entry in several.verdict.slices:
        rows = np.isin(table["group"], [*entry.slice.values()] or ["a", "b", "c"])
        click, buy = (table[f"label_{name}"][rows] for name in ("click", "buy"))
        score = WEIGHT * table["score"][rows].astype(float)
        expected_values = {"buy/brier_score": float(np.mean((buy - score**2) ** 2))}
        if click.any():
            expected_values["click/auc"] = float(metrics.roc_auc_score(click, score))
            expected_values["buy/auc"] = float(metrics.roc_auc_score(buy, score**2))
        assert entry.metrics == pytest.approx(expected_values, abs=1e-3)
        assert entry.baseline.keys() == entry.metrics.keys()
    checks = {check.metric: check.passed for check in several.verdict.checks}
    assert checks == {
        "click/auc": True,
        "buy/auc": False,
        "click/binary_crossentropy": True,
        "buy/binary_crossentropy": True,
    }
    assert not several.verdict.blessed
    assert not several.validated
    assert several.blessing["blessed"] == 0
