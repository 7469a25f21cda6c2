"""Tests for the names of features, which are rejected if TensorFlow cannot export a signature with such inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import yaml

from components.base.errors import InputError
from pipeline.authoring.config import load
from pipeline.authoring.scaffold import draft
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn


def list_problems(folder: Path, columns: dict[str, Any], **sections: Any) -> list[str]:
    config = folder / "people.yaml"
    content = {
        "data": {"path": "people.csv", "label": "y"},
        "features": {"columns": columns},
        "evaluation": {"thresholds": {"auc": {"min": 0.5}}},
        **sections,
    }
    config.write_text(yaml.safe_dump(content))
    try:
        load(str(config))
    except InputError as error:
        return list(error.details or (error.headline,))
    return []


def is_exported(folder: Path, *names: str) -> bool:
    """Return whether TensorFlow can save and load a signature whose inputs have the given names."""
    specs = {name: tf.TensorSpec([None], tf.float32, name=name) for name in names}
    function = tf.function(lambda values: {"p": sum(values.values())}, input_signature=[specs], autograph=False)
    try:
        tf.saved_model.save(tf.Module(), str(folder), signatures={"raw": function})
        loaded = tf.saved_model.load(str(folder)).signatures["raw"]
    except (TypeError, ValueError):
        return False
    return set(loaded.structured_input_signature[1]) == set(names)


@pytest.mark.parametrize(
    "names", [("_a", "b"), ("self", "b"), ("class", "None", "lambda"), ("Age", "age"), ("x" * 190, "b")]
)
def test_names_are_rejected_if_tensorflow_cannot_export_them(tmp_path: Path, names: tuple[str, ...]) -> None:
    mistakes = list_problems(tmp_path, dict.fromkeys(names, "z_score"))
    assert (not mistakes) == is_exported(tmp_path / "model", *names)


def test_names_that_cannot_be_exported_are_reported(tmp_path: Path) -> None:
    columns = {"_a": "z_score", "self": "z_score", "Age": "z_score", "age": "log", "n" * 250: "vocab"}
    mistakes = " | ".join(list_problems(tmp_path, columns))
    assert "features.columns._a: the exported model cannot have an input '_a'" in mistakes
    assert "features.columns.self: the exported model cannot have an input 'self'" in mistakes
    assert "features.columns.age: expected names of columns that differ in more than case" in mistakes
    assert "expected a feature whose name has at most 200 characters, received 25" in mistakes
    run_fn = {"model": {"run_fn": "a.b.run_fn"}}
    assert list_problems(tmp_path, {"_a": "z_score"}, **run_fn) == [], "own code exports what it likes"


def test_init_excludes_columns_that_cannot_be_exported(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    names = ["_a", "self", "Age", "age", "class", "2020"]
    frame = pd.DataFrame({name: random.normal(size=300) for name in names} | {"y": random.integers(0, 2, 300)})
    frame.to_csv(tmp_path / "people.csv", index=False)
    drafted = draft([str(tmp_path / "people.csv")], "y")
    excluded = {name for name, choice in drafted.columns.items() if isinstance(choice, ExcludedColumn)}
    assert excluded == {"_a", "self", "age", "y"}
    config = tmp_path / "people.yaml"
    config.write_text(drafted.config("schema.pbtxt"))
    assert set(load(str(config)).config.features.columns) == {"Age", "class", "x2020"}
