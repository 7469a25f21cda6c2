"""Tests of the `tune` section: the values to try, and the errors for invalid values."""

from __future__ import annotations

import json
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
            "esmm, mmoe, two_tower, ease, item_knn, ple, final_mlp, autoencoder, received 'mlq'; did you mean 'mlp'?",
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
        ("tune.halving={}", "tune: halving: expected a number for steps, received values to try; remove one of them"),
        ("tune.halving={factor: 1}", "tune.halving: expected a value greater than or equal to 2, received 1"),
        ("tune.halving={rungs: 3}", "tune.halving: unknown key"),
    ],
)
def test_invalid_value_is_reported_with_its_key(config: Path, assignment: str, message: str) -> None:
    assert message in errors(config, assignment)


HALVING = {"learning_rate": {"log": [1e-4, 1e-2]}, "steps": 90, "halving": {}}


@pytest.mark.parametrize(
    ("tune", "message"),
    [
        ({"search": "bayesian"}, "tune: halving: expected search random, received bayesian, whose model would compare"),
        (
            {"halving": {"min_steps": 40}},
            "tune: expected a first rung of at most 30 of the 90 steps of a trial, received 40; lower",
        ),
        ({"steps": 2}, "tune: expected a first rung of at most 0 of the 2 steps of a trial, received 2"),
        ({"trials": 2}, "tune: expected at least factor, 3, trials, of which one continues, received 2"),
        (
            {"kind": {"choice": ["mlp", "ensemble"]}},
            "tune: expected kinds that are trained in steps, received ensemble, which cannot pause",
        ),
        (
            {"kind": {"choice": ["mlp", "gbt"]}},
            "tune: expected kinds that are trained in steps, received gbt, which cannot pause after a rung",
        ),
    ],
)
def test_halving_that_cannot_work_is_refused(config: Path, tune: dict[str, Any], message: str) -> None:
    assert load(str(config), [f"tune={json.dumps(HALVING)}"]).config.tune is not None
    assert message in errors(config, f"tune={json.dumps(HALVING | tune)}")


def test_kind_that_would_drop_a_constraint_is_refused(config: Path) -> None:
    monotone = "model={kind: gbt, monotone: {fare: increasing}}"
    load(str(config), [monotone, "tune={kind: {choice: [gbt]}, depth: {int: [3, 8]}}"])
    message = errors(config, monotone, "tune={kind: {choice: [gbt, gbt_linear, tabm]}}")
    assert "tune.kind.choice.1: expected kinds that keep model.monotone, received gbt_linear, which" in message
    assert (
        "tune.kind.choice.2: expected kinds that keep model.monotone, received tabm, which would ignore it" in message
    )


def test_options_of_one_kind_get_their_defaults_in_another_kind(config: Path) -> None:
    model = load(str(config), ["model={kind: dcn_v2, cross_layers: 5, hidden: [9]}"]).config.model
    changed = model.with_values({"kind": "mlp"})
    assert (changed.cross_layers, changed.hidden) == (3, (9,)), "hidden layers exist in both kinds"


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["tune.kind={choice: [mlp, cnn, ensemble]}"], "tune.kind.choice.1: model.kind with cnn: cnn reads images"),
        (["tune.kind={choice: [ensemble, esmm]}"], "choice.1: model.kind with esmm: esmm learns several labels of a"),
        (["tune.kind={choice: [ensemble, ease]}"], "tune.kind.choice.1: kind: ease needs the columns of the item"),
        (
            ["model={kind: linear}", "training.optimizer.kind=ftrl", "tune.kind={choice: [linear, ensemble]}"],
            "tune.kind.choice.1: training.optimizer.kind with ensemble: ftrl forgets initial weights",
        ),
        (
            ["training.strategy={kind: multi_worker, workers: 2}", "tune.kind={choice: [ensemble, gbt]}"],
            "tune.kind.choice.1: training.strategy.kind with gbt: gbt is trained in one process",
        ),
    ],
)
def test_kind_that_does_not_fit_the_config_is_refused(config: Path, assignments: list[str], message: str) -> None:
    assert message in errors(config, *assignments)


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
