"""Tests of `evaluation.decide`: what it cannot be combined with, and which nodes depend on it."""

from __future__ import annotations

from typing import Any

import pytest

from components.base.errors import InputError
from components.tuner.config import TuneConfig
from components.tuner.plan import tuning_plan
from pipeline.authoring.config import load
from pipeline.authoring.plans import evaluation_plan, training_plan

CONFIG = "configs/taxi.yaml"
COSTS = "evaluation.decide={cost: {fp: 1, fn: 5}}"


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            ["data.task=regression", "evaluation.thresholds={mean_squared_error: {max: 1}}", "evaluation.decide=f1"],
            "evaluation.decide: expected data.task binary, whose probability it compares, received regression",
        ),
        (["model={run_fn: mine.py}", "evaluation.decide=f1"], "received a model.run_fn; remove one of them"),
        (["evaluation.decide=f2"], "expected f1, {precision: 0.9}, {recall: 0.8}"),
        (
            ["evaluation.decide={precision: 90}"],
            "evaluation.decide: expected a value less than or equal to 1, received 90",
        ),
        (["evaluation.decide={precision: 0.9, f1: true}"], "received f1 and precision"),
        (["evaluation.decide={recal: 0.9}"], "evaluation.decide: unknown key; did you mean 'recall'?"),
        (["evaluation.thresholds={cost: {max: 1}}"], "expected the costs in evaluation.decide"),
        (["evaluation.metrics=[cost]", "evaluation.decide=f1"], "expected the costs in evaluation.decide"),
        (
            ["training.calibration=isotonic", "evaluation.decide={threshold: 0.3}"],
            "isotonic requires rows that training does not see",
        ),
    ],
)
def test_config_is_refused(assignments: list[str], message: str) -> None:
    slices = "evaluation.slice_thresholds={}"
    with pytest.raises(InputError) as error:
        load(CONFIG, [slices, *assignments])
    assert message in "\n".join((error.value.headline, *error.value.details))


@pytest.mark.parametrize(
    "assignments",
    [
        ["evaluation.decide=f1"],
        [COSTS, "evaluation.thresholds={cost: {max: 1, worse_by_fraction: 0.1}}"],
        ["training.calibration=isotonic", "evaluation.decide=f1"],
        ["model={build: mine.build}", "evaluation.decide={recall: 0.8}"],
    ],
)
def test_config_is_accepted(assignments: list[str]) -> None:
    load(CONFIG, ["evaluation.slice_thresholds={}", *assignments])


def plans(*assignments: str) -> tuple[Any, Any]:
    config = load(CONFIG, list(assignments)).config
    return training_plan(config), evaluation_plan(config)


def test_trainer_depends_on_the_goal_but_not_on_other_bounds() -> None:
    plan, evaluation = plans(COSTS)
    other_plan, other_evaluation = plans(COSTS, "evaluation.thresholds={auc: {min: 0.5}}")
    assert plan.model_dump_json() == other_plan.model_dump_json()
    assert evaluation != other_evaluation
    assert plan != plans("evaluation.decide={cost: {fp: 1, fn: 6}}")[0]
    # Equal goals have equal keys, however they are written.
    assert (
        plans("evaluation.decide=f1")[0].model_dump_json() == plans("evaluation.decide={f1: true}")[0].model_dump_json()
    )


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [([], False), (["evaluation.decide={threshold: 0.3}"], False), (["evaluation.decide=f1"], True), ([COSTS], True)],
)
def test_rows_are_held_out_to_choose_a_threshold(assignments: list[str], expected: bool) -> None:
    plan, _ = plans(*assignments)
    assert plan.holds_out is expected
    assert plan.with_values({"learning_rate": 0.1}).decide == plan.decide


def test_search_does_not_depend_on_the_goal() -> None:
    tune = TuneConfig.model_validate({"learning_rate": {"choice": [0.1, 0.2]}})
    assert tuning_plan(plans(COSTS)[0], tune) == tuning_plan(plans()[0], tune)


def test_metrics_of_the_decision_are_always_computed() -> None:
    evaluation = plans(COSTS, "evaluation.metrics=[auc, f1]")[1].evaluation
    assert evaluation.metrics_for("binary") == ("auc", "f1", "precision", "recall", "cost", "binary_accuracy")
