"""Tests for configs with several labels: bounds of single labels, and sections that do not support several labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from components.evaluator.config import Threshold
from pipeline.authoring.config import load
from pipeline.authoring.config.cross_checks import check_columns
from pipeline.authoring.plans import evaluation_plan, training_plan

LABELS = {"click": "clicked", "buy": "price > 0"}
BOUND = {"min": 0.5}


def load_config(folder: Path, **sections: Any) -> Any:
    config = {
        "data": {"path": "shown.csv", "labels": LABELS, **sections.pop("data", {})},
        "features": {"columns": {"item": "vocab"}},
        "evaluation": {"thresholds": {"auc": BOUND}, **sections.pop("evaluation", {})},
        **sections,
    }
    path = folder / "shop.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return load(str(path)).config


@pytest.mark.parametrize("kind", ["mlp", "esmm", "mmoe", "ple", "tabm", "linear"])
def test_networks_can_learn_several_labels(tmp_path: Path, kind: str) -> None:
    plan = training_plan(load_config(tmp_path, model={"kind": kind}, training={"label_weights": {"buy": 2.0}})).features
    assert [(str(label), label.add_name("auc")) for label in plan.labels] == [
        ("data.labels.click", "auc_click"),
        ("data.labels.buy", "auc_buy"),
    ]
    assert plan.label_columns == ("clicked", "price")


def test_bound_applies_to_all_labels_or_to_a_named_label(tmp_path: Path) -> None:
    bounds = {
        "metrics": ["auc", "click/gauc"],
        "group": "user",
        "thresholds": {"auc": BOUND, "buy/auc": {"min": 0.7}, "click/calibration": {"max": 2}},
        "slice_thresholds": {"item": {"buy/auc": BOUND}},
        "max_importance": {"item": 0.9},
    }
    plan = evaluation_plan(load_config(tmp_path, evaluation=bounds))
    click, buy = map(plan.select_label, plan.labels)
    assert click.thresholds == {"auc": Threshold(min=0.5), "calibration": Threshold(max=2)}
    assert buy.thresholds == {"auc": Threshold(min=0.7)}
    assert (click.slice_thresholds, buy.slice_thresholds) == ({}, {"item": {"auc": Threshold(min=0.5)}})
    assert (click.metrics, buy.metrics) == (("auc", "gauc"), ("auc",))
    assert (click.max_importance, buy.max_importance) == ({"item": 0.9}, {})


def test_column_of_a_label_must_exist(tmp_path: Path) -> None:
    (problem,) = check_columns(load_config(tmp_path), ["item", "click", "price"])
    assert problem.key == ("data", "labels", "click", "clicked")
    assert problem.message == "the data has no column 'clicked'; did you mean 'click'?"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"data": {"label": "clicked"}}, "expected a label, or several labels by name, received both"),
        ({"data": {"labels": {}}}, "expected a label, or several labels by name, received neither"),
        ({"data": {"labels": {"click": "clicked"}}}, "expected two or more, received only click; use label"),
        ({"data": {"labels": {"a/b": "clicked", "c": "d"}}}, "a/b"),
        ({"data": {"labels": {"a": "clicked ==", "c": "d"}}}, "data.labels.a: "),
        ({"data": {"task": "multiclass"}}, "several labels are those of a binary task or a regression"),
        ({"data": {"weight": "price"}}, "expected a column that is not in the label, received 'price'"),
        (
            {"data": {"split": {"columns": ["item", "price"], "train": 1, "eval": 1}}},
            "data.split.columns: expected columns that are not in the label, received 'price'",
        ),
        ({"features": {"columns": {"item": "vocab", "clicked": "vocab"}}}, "clicked is the label itself"),
        ({"data": {"label": "clicked", "labels": {}}, "model": {"kind": "esmm"}}, "received data.label; add them"),
        ({"model": {"kind": "gbt"}}, "the trees of gbt learn one label"),
        ({"training": {"class_weights": "balanced"}}, "classes are those of one label"),
        (
            {"training": {"label_weights": {"byu": 2}}},
            "expected one of data.labels, received 'byu'; did you mean 'buy'?",
        ),
        ({"edge": [{"kind": "tflite"}]}, "the gate of variants compares the predictions of one label"),
        ({"model": {"run_fn": "a.b.run_fn"}}, "code of your own computes one label"),
        (
            {"evaluation": {"thresholds": {"byu/auc": BOUND}}},
            "expected a metric, or one of data.labels before the slash, received 'byu'; did you mean 'buy'?",
        ),
        ({"evaluation": {"thresholds": {"buy/acu": BOUND}}}, "unknown metric 'acu'; did you mean 'auc'?"),
        (
            {"data": {"label": "clicked", "labels": {}}, "evaluation": {"thresholds": {"buy/auc": BOUND}}},
            "one of data.labels before the slash, received 'buy'",
        ),
    ],
)
def test_incompatible_sections_are_rejected(tmp_path: Path, sections: Any, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        load_config(tmp_path, **sections)
    assert message in " | ".join(refusal.value.details or (refusal.value.headline,))
