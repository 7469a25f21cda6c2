"""Tests that the plan of a search, which is its cache key, only contains fields that can change a trial."""

from __future__ import annotations

from typing import Any

from components.trainer.config import TrainingConfig
from components.trainer.plan import TrainingPlan
from components.tuner.config import TuneConfig
from components.tuner.plan import TuningPlan, tuning_plan

PLAN = TrainingPlan.model_validate(
    {
        "features": {"features": {"columns": {"fare": "z_score"}}, "labels": [{"text": "tips > 1"}], "task": "binary"},
        "model": {"kind": "mlp"},
        "training": {},
    }
)


TUNE = TuneConfig.model_validate({"dropout": {"linear": [0, 0.5]}})


def plan(**training: Any) -> TuningPlan:
    return tuning_plan(PLAN.model_copy(update={"training": TrainingConfig.model_validate(training)}), TUNE)


def test_cluster_of_the_trainer_does_not_change_the_plan() -> None:
    cluster = {"strategy": {"kind": "parameter_server", "workers": 2, "ps": 1}, "evaluator": True, "max_restarts": 9}
    assert plan(**cluster) == plan()


def test_trials_run_as_jobs_where_the_trainer_trains() -> None:
    where = {"kind": "jobset", "image": "registry.example/taxi:2"}
    remote = plan(where=where, max_restarts=9)
    assert remote.where is not None
    assert remote.where.image == where["image"]
    assert remote.trial.training.where is None, "a task of a job trains by itself"
    assert remote.trial.training.max_restarts == 9
    assert plan().where is None
