"""Tests that the plan of a search, which is its cache key, only contains fields that can change a trial."""

from __future__ import annotations

from components.trainer.config import TrainingConfig
from components.trainer.plan import TrainingPlan
from components.tuner.config import TuneConfig
from components.tuner.plan import tuning_plan

PLAN = TrainingPlan.model_validate(
    {
        "features": {"features": {"columns": {"fare": "z_score"}}, "labels": [{"text": "tips > 1"}], "task": "binary"},
        "model": {"kind": "mlp"},
        "training": {},
    }
)


def test_remote_training_of_the_trainer_does_not_change_the_plan() -> None:
    tune = TuneConfig.model_validate({"dropout": {"linear": [0, 0.5]}})
    elsewhere = TrainingConfig.model_validate({"where": {"kind": "jobset", "image": "registry.example/taxi:2"}})
    assert tuning_plan(PLAN.model_copy(update={"training": elsewhere}), tune) == tuning_plan(PLAN, tune)
