"""Tests of the settings that cannot be combined with the list-wise loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from pipeline.authoring.config import load
from pipeline.authoring.config.cross_checks import check_columns
from pipeline.authoring.plans import training_plan

LISTS = {"loss": "listwise", "list_column": "query"}


def load_config(folder: Path, **sections: Any) -> Any:
    config = {
        "data": {"path": "shown.csv", "label": "clicked", **sections.pop("data", {})},
        "features": {"columns": {"item": "vocab"}},
        "model": {**LISTS, **sections.pop("model", {})},
        "evaluation": {"thresholds": {"auc": {"min": 0.5}}, **sections.pop("evaluation", {})},
        **sections,
    }
    path = folder / "shop.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return load(str(path)).config


def test_whole_lists_are_held_out(tmp_path: Path) -> None:
    plan = training_plan(load_config(tmp_path)).features
    assert (plan.list_column, plan.row_key.by, plan.row_key.columns) == ("query", "group", ("query",))
    split = {"by": "time", "columns": "day", "train": 4, "eval": 1}
    plan = training_plan(load_config(tmp_path, data={"split": split})).features
    assert (plan.list_column, plan.row_key.by, plan.row_key.columns) == ("query", "time", ("day",))


def test_column_of_the_lists_must_exist(tmp_path: Path) -> None:
    [problem] = check_columns(load_config(tmp_path), ["item", "clicked", "queries"])
    assert (problem.key, problem.message) == (
        ("model", "list_column"),
        "the data has no column 'query'; did you mean 'queries'?",
    )


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"data": {"task": "multiclass"}}, "model.loss: expected focal or none, which fit a multiclass task"),
        ({"data": {"task": "regression"}}, "model.loss: expected quantile, huber, poisson, tweedie or none"),
        ({"data": {"label": None, "labels": {"a": "clicked", "b": "bought"}}}, "it orders rows by one label"),
        ({"training": {"batch_size": 100}}, "expected a multiple of model.list_size, 16, received 100"),
        (
            {"training": {"batch_size": 48, "optimizer": {"accumulate": 2}}},
            "expected a multiple of model.list_size times optimizer.accumulate, 32, received 48",
        ),
        ({"training": {"strategy": {"kind": "mesh", "data": 2}}}, "a mesh divides batches regardless of lists"),
        (
            {"training": {"strategy": {"kind": "parameter_server", "workers": 1, "max_workers": 2}}},
            "workers that join would sort all rows again",
        ),
        ({"training": {"class_weights": "balanced"}}, "a list contains both classes"),
        ({"training": {"folds": 3}}, "it compares rows of a list"),
        ({"training": {"evaluator": True}}, "its rows are not sorted by list"),
        ({"training": {"cache": "none"}}, "the rows of all lists are in memory"),
        ({"evaluation": {"decide": "f1"}}, "its scores are comparable in a list only"),
        ({"edge": [{"kind": "tflite"}]}, "variants are trained on rows without lists"),
    ],
)
def test_incompatible_sections_are_rejected(tmp_path: Path, sections: Any, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        load_config(tmp_path, **sections)
    assert message in " | ".join(refusal.value.details or (refusal.value.headline,))
