"""The run_fn that TFX's Trainer calls: build, train and export the configured model, or call the user's run_fn.

In a cluster every task except the servers calls it; what each does depends on its role.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import tensorflow as tf

from components.base import user_code
from components.base.errors import InputError
from components.trainer import export_check, strategy
from components.trainer.cluster import tf_config
from components.trainer.cluster.loopback import limit_to_loopback
from components.trainer.cluster.tf_config import Role
from components.trainer.model_export import export_model
from components.trainer.plan import TrainingPlan
from components.trainer.training import Training

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs

PATH = f"{__name__}.run_fn"
"""Import path for TFX's Trainer."""


def run_fn(fn_args: FnArgs) -> None:
    """Train and export the model of a plan.

    Args:
      fn_args: TFX's FnArgs; `custom_config["plan"]` is a TrainingPlan as JSON, `custom_config["checkpoints"]` the
        folder for checkpoints.

    Raises:
      InputError: If the label cannot be learned, the strategy does not fit, or the user's run_fn failed or did not
        write a model.
      SystemExit: If the process received SIGTERM.
    """
    plan = TrainingPlan.model_validate_json(fn_args.custom_config["plan"])
    role = tf_config.role()
    if plan.model.run_fn:
        with limit_to_loopback(role):
            user_code.call(plan.model.run_fn, fn_args)
        _check_model(plan.model.run_fn, fn_args.serving_model_dir)
        return
    is_exporter = role is None or role.is_lead
    with export_check.waiting_process() if is_exporter else contextlib.nullcontext():
        _train(plan, fn_args, role)


def _train(plan: TrainingPlan, fn_args: FnArgs, role: Role | None) -> None:
    """Train the configured model, as the role of this process requires."""
    strategy.prepare(role, plan.training)
    if role is not None and role.is_evaluator:
        Training(plan, fn_args).network.evaluate_checkpoints()
        return
    # Collective operations must be set up before the first op of any kind.
    distribution = strategy.distribute(plan.training, role)
    training = Training(plan, fn_args)
    training.fit(distribution)
    if distribution.is_lead:
        export_model(plan, fn_args, training)
    if plan.training.strategy.kind == "multi_worker":
        strategy.wait_for_all_replicas(distribution.strategy)


def _check_model(path: str, folder: str) -> None:
    """Check that the user's run_fn has written a SavedModel; only the lead of a cluster has to."""
    role = tf_config.role()
    if (role is None or role.is_lead) and not tf.io.gfile.exists(f"{folder}/saved_model.pb"):
        raise InputError(
            f"{path}: expected a SavedModel in fn_args.serving_model_dir, received none",
            "save the model there: `model.save(fn_args.serving_model_dir, save_format='tf')`",
        )
