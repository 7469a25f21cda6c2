"""Errors in the `evaluation` section are reported with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.base.errors import InputError
from pipeline.authoring.config import load
from pipeline.authoring.config.cross_checks import check_columns

CONFIG = """\
data:
  path: trips.csv
  label: churned
features:
  columns: {fare: z_score}
evaluation:
  slices: [plan, [plan, city]]
  thresholds:
    auc: {min: 0.9}
  slice_thresholds:
    plan: {auc: {min: 0.6}}
    city = New York:
      auc: {worse_by: 0.1}
  fairness:
    column: gender
    max_gap: {positive_rate: 0.1}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "trips.yaml"
    path.write_text(CONFIG)
    return path


def load_error(path: Path, *assignments: str) -> str:
    with pytest.raises(InputError) as refusal:
        load(str(path), assignments)
    assert not refusal.value.details
    return refusal.value.headline.replace(f"{path.parent}/", "")


@pytest.mark.parametrize(
    ("old", "new", "actual"),
    [
        (
            "  thresholds:\n    auc: {min: 0.9}\n",
            "",
            "trips.yaml:6: evaluation: 'thresholds' is required and missing",
        ),
        ("  thresholds:\n    auc: {min: 0.9}\n", "  thresholds: {}\n", "trips.yaml:8: evaluation.thresholds: expected"),
        (
            "{worse_by: 0.1}",
            "{worse_by: -0.1}",
            "trips.yaml:13: evaluation.slice_thresholds.city = New York.auc.worse_by",
        ),
        ("{min: 0.9}", "{min: .nan}", "trips.yaml:9: evaluation.thresholds.auc.min: expected a finite number"),
        (
            "plan: {auc: {min: 0.6}}",
            "plan: {}",
            "trips.yaml:11: evaluation.slice_thresholds.plan: expected",
        ),
        (
            "plan: {auc: {min: 0.6}}",
            "plan: {auk: {min: 0.6}}",
            "trips.yaml:11: evaluation.slice_thresholds.plan.auk: unknown metric 'auk'; did you mean 'auc'?",
        ),
        (
            "plan: {auc: {min: 0.6}}",
            "plan: {accuracy: {min: 0.6}}",
            "trips.yaml:11: evaluation.slice_thresholds.plan.accuracy: accuracy does not fit a binary task",
        ),
        (
            "city = New York:",
            "city =:",
            "expected a column, or one value of it as in payment_type = Cash; received 'city ='",
        ),
        (
            "{positive_rate: 0.1}",
            "{positive_rates: 0.1}",
            "trips.yaml:16: evaluation.fairness.max_gap.positive_rates: expected one of false_positive_rate, "
            "false_negative_rate, positive_rate, received 'positive_rates'; did you mean 'positive_rate'?",
        ),
        ("{positive_rate: 0.1}", "{positive_rate: 2}", "trips.yaml:16: evaluation.fairness.max_gap.positive_rate"),
        (
            "  slices:",
            "  force_bless: because\n  slices:",
            "force_bless is not a config key, because it would bless every model from now on; use --force-bless REASON",
        ),
    ],
)
def test_wrong_field_is_reported_with_its_line(config: Path, old: str, new: str, actual: str) -> None:
    assert old in CONFIG
    config.write_text(CONFIG.replace(old, new))
    headline = load_error(config)
    assert headline.startswith("trips.yaml:")
    assert actual in headline


def test_force_bless_is_rejected_as_an_assignment(config: Path) -> None:
    assert "force_bless is not a config key" in load_error(config, "evaluation.force_bless=because")


def test_rates_of_groups_require_a_binary_task(config: Path) -> None:
    regression = ("data.task=regression", "evaluation.slice_thresholds={}")
    assert load_error(config, *regression, "evaluation.thresholds={mean_squared_error: {max: 1}}") == (
        "trips.yaml:14: evaluation.fairness: rates of false positives are those of a binary task, "
        "and this one is regression"
    )


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["evaluation.metrics=[ndcg_at_10]"], "ndcg_at_10 requires groups of rows; set evaluation.group to a column"),
        (["evaluation.thresholds={gauc: {min: 0.5}}"], "gauc requires groups of rows; set evaluation.group"),
        (["evaluation.group=city", "runtime.vectorised=false"], "remove it, or runtime.vectorised"),
        (["evaluation.group=city", "evaluation.metrics=[ndcg_at_0.5]"], "unknown metric 'ndcg_at_0.5'"),
        (
            ["evaluation.group=city", "data.task=regression", "evaluation.thresholds={mean_squared_error: {max: 1}}"],
            "evaluation.group: metrics of groups are those of a binary or a retrieval task, and this one is regression",
        ),
    ],
)
def test_metrics_of_groups_require_a_group_and_a_binary_task_and_vectorization(
    config: Path, assignments: list[str], message: str
) -> None:
    overrides = ["evaluation.fairness=null", "evaluation.slice_thresholds={}"]
    assert message in load_error(config, *overrides, *assignments)
    accepted = load(str(config), ["evaluation.group=city", "evaluation.thresholds={mrr_at_5: {min: 0.1}}"]).config
    assert accepted.evaluation.metrics_for("binary")[-3:] == ("gauc", "ndcg_at_10", "mrr_at_5")


def test_bounds_of_importance_require_feature_columns(config: Path) -> None:
    problem = load_error(config, "evaluation.max_importance={fair: 0.5}")
    assert "'fair' is no column of the features; did you mean 'fare'?" in problem
    assert "received 2" in load_error(config, "evaluation.max_importance={fare: 2}")
    assignments = ("evaluation.max_importance={fare: 0.5}", "evaluation.importance_rows=0")
    assert "expected importance_rows above 0 with max_importance, received 0" in load_error(config, *assignments)
    for columns in (-1, 51):
        assert f"received {columns}" in load_error(config, f"evaluation.dependence_columns={columns}")


def test_every_unknown_column_is_reported(config: Path) -> None:
    problems = check_columns(
        load(str(config), ["evaluation.group=user"]).config, ["churned", "fare", "plann", "gender2"]
    )
    assert [problem.key[1:] for problem in problems] == [
        ("slices", 0, "plan"),
        ("slices", 1, "plan"),
        ("slices", 1, "city"),
        ("slice_thresholds", "plan"),
        ("slice_thresholds", "city = New York"),
        ("group",),
        ("fairness", "column"),
    ]
    assert "did you mean 'gender2'?" in problems[-1].message
