"""Tests for the configs of survival models: the event, and fields that are not supported."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from components.base.errors import InputError
from pipeline.authoring.config import load
from pipeline.authoring.config.cross_checks import check_columns, check_dtypes
from pipeline.authoring.plans import evaluation_plan, training_plan

CONFIG = {
    "pipeline": {"name": "tenants"},
    "data": {"path": "tenants.csv", "label": "months", "event": "state == 'left'", "task": "survival"},
    "features": {"columns": {"rent": "z_score", "city": "vocab"}},
    "model": {"kind": "mlp"},
    "evaluation": {"thresholds": {"concordance": {"min": 0.6}}},
}


REGRESSION = "evaluation.thresholds={mean_squared_error: {max: 9}}"


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "tenants.yaml"
    file.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    return str(file)


def test_plans_contain_the_event(path: str) -> None:
    config = load(path, ["data.intervals=12"]).config
    plan = training_plan(config).features
    assert (plan.intervals, plan.label_columns) == (12, ("months", "state"))
    assert (evaluation_plan(config).prediction_key, evaluation_plan(config).label_columns) == (
        "prediction",
        ("months", "state"),
    )


@pytest.mark.parametrize("kind", ["linear", "wide_deep", "dlrm", "dcn_v2", "tabm", "final_mlp"])
def test_networks_are_supported(path: str, kind: str) -> None:
    assert load(path, [f"model.kind={kind}", "training={early_stopping: 2}"])


def test_an_unknown_column_of_the_event_is_reported(path: str) -> None:
    [problem] = check_columns(load(path).config, ["months", "stat", "rent", "city"])
    assert problem.key[:2] == ("data", "event")
    assert "the data has no column 'state'; did you mean 'stat'?" in problem.message


@pytest.mark.parametrize("task", ["survival", "regression"])
def test_a_column_of_text_is_not_a_time(path: str, task: str) -> None:
    config = load(path, [] if task == "survival" else ["data.task=regression", "data.event=null", REGRESSION]).config
    dtypes = {"months": "bytes", "state": "bytes", "rent": "int", "city": "bytes"}
    [problem] = check_dtypes(config, dtypes)  # type: ignore[arg-type]
    assert problem.key == ("data", "label")
    assert problem.message == (
        f"{task} predicts a number, and 'months' holds text or bytes; choose another label, or set data.types to "
        "{months: float}"
    )
    assert not check_dtypes(config, {**dtypes, "months": "float"})  # type: ignore[arg-type, dict-item]


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["data.event=null"], "event: expected an event with task survival, received none; add it"),
        (
            ["data.task=regression"],
            "expected task survival, received regression with \"state == 'left'\"; remove event",
        ),
        (["data.task=binary", "data.event=null", "data.intervals=9"], "intervals: expected task survival"),
        (["data.intervals=1"], "greater than or equal to 2"),
        (["data.event=state =="], "data.event"),
        (["data.label=null", "data.labels={a: x, b: y}"], "several labels are those of a binary task or a regression"),
        (["features.columns.state=vocab"], "state make up the whole label"),
        (["features.columns.months=z_score"], "months is the label itself"),
        (["data.weight=state"], "expected a column that is not in the label, received 'state'"),
        (["model.kind=gbt"], "model.kind: does not go together with the task survival: the trees of gbt learn one"),
        (["model={run_fn: mine.py}"], "a run_fn computes the label itself; write model.build"),
        (["model={train: 'mine.py:fit'}"], "a function of your own learns one value per row; write model.build"),
        (["model.loss=huber"], "fit a survival task, received huber"),
        (["training.calibration=isotonic"], "isotonic is for a binary or a multilabel task, and task is survival"),
        (["training.class_weights=balanced"], "a row has a time instead of a class; remove it"),
        (["features.columns.city={op: target_mean}"], "target_mean expects one label, of the task binary"),
        (["runtime.vectorised=false"], "its metrics require an evaluation in record batches"),
        (["edge=[{}]"], "edge: does not go together with the task survival: the gate of variants"),
        (
            ["evaluation.thresholds={auc: {min: 0.5}}"],
            "auc does not fit a survival task; negative_log_likelihood, concordance, integrated_brier_score do",
        ),
        (["evaluation.decide={f1: true}"], "expected data.task binary, whose probability it compares"),
        (["data.sample={label: {'1': 0.5}}"], "expected one label with task binary or multiclass"),
    ],
)
def test_unsupported_fields_are_rejected(path: str, assignments: list[str], message: str) -> None:
    with pytest.raises(InputError) as raised:
        load(path, assignments)
    assert message in str(raised.value)
