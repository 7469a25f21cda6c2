"""Tests for the configs of anomaly detection: an optional label, and fields that are not supported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from components.evaluator.plan import PSEUDO_LABEL
from pipeline.authoring.config import load
from pipeline.authoring.config.cross_checks import check_columns
from pipeline.authoring.plans import evaluation_plan, training_plan

CONFIG: dict[str, Any] = {
    "pipeline": {"name": "machines"},
    "data": {"path": "machines.csv", "task": "anomaly"},
    "features": {"columns": {"speed": "z_score", "heat": "log", "site": "vocab"}},
    "model": {"kind": "autoencoder"},
    "evaluation": {"thresholds": {"auc": {"min": 0.7}}},
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "machines.yaml"
    file.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    return str(file)


def test_without_a_label_permuted_rows_are_the_anomalies(path: str) -> None:
    config = load(path).config
    features, plan = training_plan(config).features, evaluation_plan(config)
    assert (features.label_columns, [label.text for label in features.labels]) == ((), [""])
    assert (plan.label_key, plan.preprocessing, plan.prediction_key) == (PSEUDO_LABEL, (), "score")
    assert not check_columns(config, ["speed", "heat", "site"])
    assert training_plan(config).holds_out


def test_a_label_is_only_evaluated_and_may_consist_of_features(path: str) -> None:
    config = load(path, ["data.label=speed > 100"]).config
    plan = evaluation_plan(config)
    assert (plan.label_key, plan.preprocessing, plan.label_columns) == ("label", ("transform_labels",), ("speed",))


@pytest.mark.parametrize(
    "assignments",
    [
        ["model.contamination=0.2", "training={folds: 3}"],
        ["evaluation.metrics=[auc, precision_at_100, recall_at_100]", "evaluation.slices=[[site]]"],
        ["tune={hidden: {choice: [[32], [64, 32]]}}"],
        ["data.label=failed", "monitor={labels: late.csv, key: id}"],
        ["features.columns.site={op: split}", "data.weight=amount"],
    ],
)
def test_supported_fields_are_accepted(path: str, assignments: list[str]) -> None:
    assert load(path, assignments)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["data.task=binary"], "expected a label, or several labels by name, received neither"),
        (["data.task=binary", "data.label=failed"], "autoencoder is for the task anomaly, received binary"),
        (["data.labels={a: x, b: y}"], "several labels are those of a binary task or a regression"),
        (["model.kind=mlp"], "the task anomaly requires autoencoder, received mlp"),
        (["model.kind=gbt"], "the task anomaly requires autoencoder, received gbt"),
        (["model={build: 'mine.py:net'}"], "the task anomaly requires autoencoder, received a function of your own"),
        (["model={train: 'mine.py:fit'}"], "the task anomaly requires autoencoder, received a function of your own"),
        (["tune={kind: {choice: [autoencoder, mlp]}}"], "tune: the task anomaly requires autoencoder, received mlp"),
        (
            ["data={path: a.csv, label: y}", "model={kind: mlp}", "tune={kind: {choice: [autoencoder, mlp]}}"],
            "autoencoder is for the task anomaly, received binary",
        ),
        (["model.contamination=0.5"], "less than 0.5"),
        (["model={kind: mlp, contamination: 0.1}"], "contamination: expected kind autoencoder, received mlp"),
        (
            ["model={run_fn: mine.py}", "features={preprocessing_fn: mine.py}"],
            "your own code computes the features; declare features.columns",
        ),
        (["features.columns={speed: z_score}"], "expected at least two columns, which predict each other, received 1"),
        (["features.columns.photo={op: image, height: 8, width: 8}"], "image is not predicted by autoencoder"),
        (
            ["features.columns.note={op: text, vocabulary: 100, weighting: tf_idf}"],
            "text is not predicted by autoencoder",
        ),
        (["features.columns.site={op: target_mean}"], "of the task binary, multiclass or regression"),
        (["training.class_weights=balanced"], "the label is not learned; remove it"),
        (["training.calibration=isotonic"], "isotonic is for a binary or a multilabel task, and task is anomaly"),
        (["model.loss=focal"], "fit an anomaly task, received focal"),
        (["evaluation.max_importance={speed: 0.5}"], "there is no loss of labels; remove it"),
        (["runtime.vectorised=false"], "its metrics require an evaluation in record batches"),
        (["edge=[{}]"], "does not go together with the task anomaly, which has no label to judge"),
        (["evaluation.thresholds={f1: {min: 0.5}}"], "f1 does not fit an anomaly task; auc, auc_precision_recall do"),
        (["evaluation.decide={f1: true}"], "expected data.task binary, whose probability it compares"),
        (["evaluation.fairness={column: site}"], "rates of false positives are those of a binary task"),
        (["evaluation.group=site"], "metrics of groups are those of a"),
        (["data.sample={label: {'1': 0.5}}"], "expected one label with task binary or multiclass"),
        (["data.windows={time: at, horizon: 1}"], "expected a column of numbers as label, with task regression"),
        (
            ["monitor={labels: late.csv, key: id}"],
            "expected data.label, whose columns the files contain, received",
        ),
    ],
)
def test_unsupported_fields_are_rejected(path: str, assignments: list[str], message: str) -> None:
    with pytest.raises(InputError) as raised:
        load(path, assignments)
    assert message in str(raised.value)
