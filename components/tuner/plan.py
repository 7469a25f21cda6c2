"""What the Tuner depends on, as JSON in its parameters."""

from __future__ import annotations

from components.section import Section
from components.trainer.config import CheckpointConfig, StrategyConfig, TensorBoardConfig
from components.trainer.plan import TrainingPlan
from components.tuner.config import TuneConfig


class TuningPlan(Section):
    """A trial's training but for the values that are tried, and which these are."""

    trial: TrainingPlan
    tune: TuneConfig


def tuning_plan(plan: TrainingPlan, tune: TuneConfig) -> TuningPlan:
    """The plan of a search.

    A trial is one process alone, for `tune.steps`, and is saved once, at its end. What else the config says of
    clusters and checkpoints has no effect on it, and so stays out of the Tuner's cache key.

    Args:
      plan: the Trainer's.
      tune: what is tried.
    """
    steps = tune.steps or plan.training.steps
    alone = plan.training.model_copy(
        update={
            "steps": steps,
            "strategy": StrategyConfig(),
            "cluster": "local",
            "checkpoint": CheckpointConfig(every_steps=steps, keep=1),
            "evaluator": False,
            "early_stopping": None,
            "warm_start": False,
            "max_restarts": 0,
            "heartbeat_seconds": 60.0,
            "tensorboard": TensorBoardConfig(),
        }
    )
    return TuningPlan(trial=plan.model_copy(update={"training": alone}), tune=tune.model_copy(update={"steps": steps}))
