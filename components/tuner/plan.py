"""Everything the Tuner depends on, as JSON in its parameters."""

from __future__ import annotations

from components.base.config_section import Section
from components.trainer.config import CheckpointConfig, StrategyConfig, TensorBoardConfig
from components.trainer.plan import TrainingPlan
from components.trainer.remote.config import WhereConfig
from components.tuner.config import TuneConfig, WholeNumbers


class TuningPlan(Section):
    """The training of a trial, and the values that the trials replace in it."""

    trial: TrainingPlan
    tune: TuneConfig
    where: WhereConfig | None = None
    """The service that runs the trials as jobs; if None, the machine of the node runs them."""

    @property
    def rungs(self) -> list[int]:
        """The numbers of steps at which trials are compared by `tune.halving`; empty without it."""
        return self.tune.halving.list_rungs(self.trial.training.steps) if self.tune.halving else []


def tuning_plan(plan: TrainingPlan, tune: TuneConfig) -> TuningPlan:
    """Return the plan of a search.

    A trial trains in one process, or in a job with one task, for its steps, and is measured on the validation part: at
    its end, with early stopping at every checkpoint, with halving also at multiples of the first rung's steps. It
    ignores the config's other fields for clusters and checkpoints, so they are not part of the Tuner's cache key.

    Args:
      plan: Plan of the Trainer.
      tune: The values to try.
    """
    steps = max(tune.steps.candidates) if isinstance(tune.steps, WholeNumbers) else tune.steps or plan.training.steps
    every = steps
    if plan.training.early_stopping:
        every = plan.training.checkpoint.every_steps
    elif tune.halving:
        every = tune.halving.list_rungs(steps)[0]
    training = plan.training.model_copy(
        update={
            "steps": steps,
            "strategy": StrategyConfig(),
            "where": None,
            "checkpoint": CheckpointConfig(every_steps=every, keep=1),
            "evaluator": False,
            "warm_start": False,
            "max_restarts": plan.training.max_restarts if plan.training.where else 0,
            "heartbeat_seconds": 60.0,
            "tensorboard": TensorBoardConfig(),
        }
    )
    # A trial is measured by its loss, which does not depend on a threshold.
    trial = plan.model_copy(update={"training": training, "decide": None})
    return TuningPlan(trial=trial, tune=tune, where=plan.training.where)
