"""The run_fn that TFX's Trainer calls: build, fit and export the declared model, or hand over to the user's run_fn.

In a cluster every task but the servers calls it; what each does follows from its role.
"""

from __future__ import annotations

from typing import Any

from components import user_code
from components.trainer import strategy
from components.trainer.cluster import roles
from components.trainer.plan import TrainingPlan
from components.trainer.training import Training

PATH = f"{__name__}.run_fn"
"""Import path for TFX's Trainer."""


def run_fn(fn_args: Any) -> None:
    """Trains and exports.

    Args:
      fn_args: TFX's FnArgs; `custom_config["plan"]` is a TrainingPlan as JSON, `custom_config["checkpoints"]` the
        folder for checkpoints.

    Raises:
      InputError: the label cannot be learned, the strategy does not fit, or the user's run_fn failed.
      SystemExit: the process was asked to end by SIGTERM.
    """
    plan = TrainingPlan.model_validate_json(fn_args.custom_config["plan"])
    if plan.model.run_fn:
        user_code.call(plan.model.run_fn, fn_args)
        return
    role = roles.role()
    strategy.prepare(role, plan.training.precision)
    if role is not None and role.kind == "evaluator":
        Training(plan, fn_args).evaluate_checkpoints()
        return
    # Collective operations have to be set up before the first op of any kind.
    chosen = strategy.strategy(plan.training, role)
    training = Training(plan, fn_args)
    training.fit(chosen, role)
    if role is None or role.is_lead:
        training.export()
    if plan.training.strategy.kind == "multi_worker":
        strategy.part(chosen)
