"""Tests of the `tune` section: the values to try, and the errors for invalid values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from components.base.errors import InputError
from components.tuner.config import TuneConfig
from pipeline.authoring.config import load

CONFIG = """data: {path: rows.csv, label: tips > 1}
features: {columns: {fare: z_score}}
evaluation: {thresholds: {auc: {min: 0.5}}}
tune:
  learning_rate: {log: [1e-4, 1e-2]}
  dropout: {linear: [0, 0.5]}
  batch_size: {choice: [128, 512]}
  hidden: {choice: [[64], [128, 64]]}
  embedding: {int: [4, 64]}
  kind: {choice: [mlp, wide_deep, ensemble]}
  weight_decay: {linear: [0, 0.1]}
  steps: {int: [100, 500]}
  members: {choice: [8, 16]}
  trees: {choice: [500]}
  depth: {int: [3, 8]}
  shrinkage: {log: [0.02, 0.2]}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "trips.yaml"
    path.write_text(CONFIG)
    return path


def errors(config: Path, *assignments: str) -> str:
    with pytest.raises(InputError) as refusal:
        load(str(config), assignments)
    return "\n".join((refusal.value.headline, *refusal.value.details))


def test_all_fields_can_be_tuned(config: Path) -> None:
    tune = load(str(config)).config.tune
    assert tune is not None
    assert {name: (values.sampling, values.candidates) for name, values in tune.values().items()} == {
        "learning_rate": ("log", (1e-4, 1e-2)),
        "batch_size": ("choice", (128, 512)),
        "kind": ("choice", ("mlp", "wide_deep", "ensemble")),
        "hidden": ("choice", ((64,), (128, 64))),
        "embedding": ("int", (4, 64)),
        "dropout": ("linear", (0.0, 0.5)),
        "weight_decay": ("linear", (0.0, 0.1)),
        "steps": ("int", (100, 500)),
        "members": ("choice", (8, 16)),
        "trees": ("choice", (500,)),
        "depth": ("int", (3, 8)),
        "shrinkage": ("log", (0.02, 0.2)),
    }
    assert TuneConfig.model_validate_json(tune.model_dump_json()) == tune


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("tune={}", "tune: expected values for at least one of kind, learning_rate, weight_decay"),
        ("tune.learning_rate={choice: [0.1, -1]}", "tune.learning_rate: expected a value greater than 0"),
        ("tune.learning_rate={linear: [0, 1]}", "tune.learning_rate: expected a value greater than 0"),
        ("tune.learning_rate={log: [0, 1]}", "tune.learning_rate.log.0: expected a value greater than 0"),
        ("tune.learning_rate={log: [1, 0.1]}", "log: expected [minimum, maximum], received [1.0, 0.1]"),
        ("tune.learning_rate={choice: [1], log: [0.1, 1]}", "expected one of choice, linear, log, received choice and"),
        ("tune.dropout={linear: [0.5, 1]}", "tune.dropout.linear.1: expected a value less than 1, received 1.0"),
        ("tune.dropout={}", "tune.dropout: expected one of choice, linear, log, received nothing"),
        ("tune.embedding={int: [4, 5000]}", "tune.embedding.int.1: expected a value less than or equal to 4096"),
        ("tune.embedding={log: [4, 50]}", "tune.embedding: unknown key; expected one of choice, int"),
        ("tune.hidden={choice: [[]]}", "tune.hidden.choice.0: "),
        ("tune.hidden={choice: [64]}", "tune.hidden.choice.0: expected a list, received 64"),
        (
            "tune.kind={choice: [mlq]}",
            "bst, esmm, mmoe, two_tower, ease, item_knn, ple, final_mlp, received 'mlq'; did you mean 'mlp'?",
        ),
        ("tune.steps=0", "tune.steps: expected a value greater than 0"),
        ("tune.steps={int: [0, 9]}", "tune.steps.int.0: expected a value greater than 0"),
        ("tune.steps={log: [1, 9]}", "tune.steps: unknown key; expected one of choice, int"),
        ("tune.parallel=0", "tune.parallel: expected a value greater than 0"),
        ("tune.members={int: [1, 4]}", "expected a value greater than or equal to 2, received 1"),
        ("tune.depth={choice: [40]}", "tune.depth: expected a value less than or equal to 20"),
        ("tune.kind={choice: [mlp]}", "tune.members: members has no effect in mlp; remove it"),
        ("tune.kind={choice: [gbt]}", "tune.learning_rate: learning_rate has no effect in gbt; remove it"),
        ("tune.search=grid", "expected one of random, bayesian"),
        ("tune.layers={choice: [3]}", "tune.layers: unknown key"),
        ("model.build=mine.build", "tune.kind: model.build makes the network itself, so this would have no effect"),
        ("model.run_fn=mine.run_fn", "tune: a model.run_fn of your own does its own tuning"),
    ],
)
def test_invalid_value_is_reported_with_its_key(config: Path, assignment: str, message: str) -> None:
    assert message in errors(config, assignment)


def test_values_are_validated_with_a_kind_in_which_they_have_an_effect(config: Path) -> None:
    tune = load(str(config), ["model={kind: linear}", "tune.kind={choice: [linear, ensemble]}"]).config.tune
    assert tune is not None
    assert tune.kinds("hidden", "linear") == ["ensemble"]
    assert tune.kinds("learning_rate", "linear") == ["linear", "ensemble"]
    assert "tune.members: members has no effect in linear; remove it" in errors(
        config, "model={kind: linear}", "tune={members: {choice: [8]}}"
    )


def test_batch_size_is_a_multiple_of_the_synchronous_workers(config: Path) -> None:
    message = errors(config, "training.strategy={kind: multi_worker, workers: 3}", "training.batch_size=300")
    assert "tune.batch_size.choice.0: batch_size is shared by the workers" in message
    assert "tune.batch_size.choice.1: batch_size is shared by the workers" in message


@pytest.mark.parametrize("steps", ["50", "{choice: [50, 500]}"])
def test_warm_up_is_shorter_than_the_trials(config: Path, steps: str) -> None:
    message = errors(config, "training.schedule.warm_up_steps=60", "training.steps=600", f"tune.steps={steps}")
    assert "schedule.warm_up_steps: expected fewer than the 50 steps, received 60" in message


@pytest.mark.parametrize("section", [{}, {"trials": 3}])
def test_empty_section_is_an_error(section: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="received none"):
        TuneConfig.model_validate(section)
