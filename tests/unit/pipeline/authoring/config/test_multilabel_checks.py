"""Tests for the configs of multilabel models: fields that are not supported, and the columns of the label."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from components.base.class_set import ClassSetConfig
from components.base.errors import InputError
from pipeline.authoring.config import load
from pipeline.authoring.config.cross_checks import check_dtypes
from pipeline.authoring.plans import evaluation_plan, training_plan

CONFIG = {
    "pipeline": {"name": "movies"},
    "data": {"path": "movies.csv", "label": "genres", "task": "multilabel"},
    "features": {"columns": {"year": "z_score", "title": "text"}},
    "model": {"kind": "mlp"},
    "evaluation": {"thresholds": {"log_loss": {"max": 0.4}}},
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "movies.yaml"
    file.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    return str(file)


def test_plans_contain_how_the_classes_are_read(path: str) -> None:
    config = load(path, ["data.classes={separator: ',', size: 20, min_frequency: 5}"]).config
    assert training_plan(config).features.classes == ClassSetConfig(separator=",", size=20, min_frequency=5)
    plan = evaluation_plan(config)
    assert (plan.task, plan.prediction_key) == ("multilabel", "probabilities")


@pytest.mark.parametrize("kind", ["linear", "wide_deep", "dlrm", "dcn_v2", "tabm"])
def test_networks_are_supported(path: str, kind: str) -> None:
    assert load(path, [f"model.kind={kind}", "training={early_stopping: 2, calibration: isotonic}"])


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["data.task=multiclass", "data.classes={size: 5}"], "classes: expected task multilabel, received multiclass"),
        (["data.classes={size: 1}"], "greater than or equal to 2"),
        (["data.label=year > 1990"], "task is multilabel; received 'year > 1990'"),
        (["data.label=null", "data.labels={a: x, b: y}"], "several labels are those of a binary task or a regression"),
        (["model.kind=gbt"], "model.kind: does not go together with the task multilabel: the trees of gbt learn one"),
        (["model.kind=ensemble"], "the trees of ensemble learn one value per row; choose networks"),
        (
            ["tune={kind: {choice: [mlp, gbt]}}"],
            "tune: does not go together with the task multilabel: the trees of gbt",
        ),
        (["model.kind=esmm"], "esmm learns several labels of a binary task: expected data.labels"),
        (["model={kind: ease, item: [title]}"], "ease is for the task retrieval, received multilabel"),
        (["model={run_fn: mine.py}"], "a run_fn computes the label itself; write model.build"),
        (["model={train: 'mine.py:fit'}"], "a function of your own learns one value per row; write model.build"),
        (
            ["model={run_fn: mine.py}", "features={preprocessing_fn: mine.py}"],
            "your own code computes the label; declare features.columns",
        ),
        (["model.loss=focal"], "fit a multilabel task, received focal"),
        (["training.class_weights=balanced"], "training.class_weights: does not go together with the task multilabel"),
        (["training.augmentation={mixup: 0.2}"], "it blends rows of one class; remove it"),
        (
            ["features.columns.title={op: target_mean}"],
            "target_mean expects one label, of the task binary, multiclass or regression",
        ),
        (["runtime.vectorised=false"], "its metrics require an evaluation in record batches"),
        (["edge=[{}]"], "edge: does not go together with the task multilabel: the gate of variants"),
        (["evaluation.thresholds={auc: {min: 0.5}}"], "auc does not fit a multilabel task; log_loss, micro_f1"),
        (["evaluation.group=title"], "metrics of groups are those of a"),
        (["evaluation.fairness={column: title}"], "rates of false positives are those of a binary task"),
        (["evaluation.decide={f1: true}"], "expected data.task binary, whose probability it compares"),
        (["data.sample={label: {'1': 0.5}}"], "expected one label with task binary or multiclass"),
        (
            ["data.windows={time: year, horizon: 1}"],
            "expected a column of numbers as label, with task regression, received 'genres' with task multilabel",
        ),
    ],
)
def test_unsupported_fields_are_rejected(path: str, assignments: list[str], message: str) -> None:
    with pytest.raises(InputError) as raised:
        load(path, assignments)
    assert message in str(raised.value)


def test_a_column_of_floats_is_not_a_label(path: str) -> None:
    config = load(path).config
    dtypes = {"genres": "float", "year": "int", "title": "bytes"}
    [problem] = check_dtypes(config, dtypes)  # type: ignore[arg-type]
    assert problem.key == ("data", "label")
    assert problem.message == (
        "multilabel takes text or whole numbers, and 'genres' holds numbers; set data.types to {genres: bytes}"
    )
    assert not check_dtypes(config, {**dtypes, "genres": "bytes"})  # type: ignore[arg-type, dict-item]
