"""The run_fn that TFX's Trainer calls: build, fit and export the declared model, or hand over to the user's run_fn.

In a cluster every task but the servers calls it; what each does follows from its role.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components import user_code
from components.errors import InputError
from components.models.build import build
from components.models.inputs import inputs
from components.trainer import checkpoint, strategy
from components.trainer import input as train_input
from components.trainer.cluster import roles
from components.trainer.cluster.roles import Role
from components.trainer.curves import Curves
from components.trainer.evaluate import evaluate, follow
from components.trainer.export import export
from components.trainer.fit import Fit
from components.trainer.plan import TrainingPlan
from components.trainer.target import Target, target

PATH = f"{__name__}.run_fn"
"""Import path for TFX's Trainer."""

_EVAL_BATCH = 4096


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
        _Training(plan, fn_args).evaluate_checkpoints()
        return
    # Collective operations have to be set up before the first op of any kind.
    chosen = strategy.strategy(plan.training, role)
    training = _Training(plan, fn_args)
    training.fit(chosen, role)
    if role is None or role.is_lead:
        training.export()
    if plan.training.strategy.kind == "multi_worker":
        strategy.barrier(chosen)


class _Training:
    """One model's training, as this process sees it."""

    def __init__(self, plan: TrainingPlan, fn_args: Any) -> None:
        self._plan = plan
        self._fn_args = fn_args
        self._transform = tft.TFTransformOutput(fn_args.transform_output)
        self._target: Target = target(plan.features, self._transform)
        self._checkpoints: str = fn_args.custom_config["checkpoints"]

    def fit(self, chosen: Any, role: Role | None) -> None:
        config = self._plan.training
        if config.batch_size % chosen.num_replicas_in_sync and config.strategy.kind != "parameter_server":
            raise InputError(
                f"training.batch_size: {config.batch_size} examples do not go into {chosen.num_replicas_in_sync} "
                "replicas",
                "choose a multiple",
            )
        tf_keras.utils.set_random_seed(config.seed)
        files = train_input.find(self._fn_args.train_files)
        spec = self._transform.transformed_feature_spec()
        inline = config.evaluator and not config.strategy.is_cluster
        lead = role is None or role.is_lead
        Fit(
            config,
            chosen,
            role,
            self._network,
            self._target,
            lambda batch_size, share: train_input.training(files, spec, batch_size, config, share),
            self._checkpoints,
            None if lead else f"{self._fn_args.model_run_dir}/checkpoints",
            self._fn_args.model_run_dir,
            self._evaluate if inline else lambda step, network: None,
        ).to_the_end()

    def evaluate_checkpoints(self) -> None:
        follow(self._checkpoints, self._plan.training.steps, self._restored, self._evaluate)

    def export(self) -> None:
        """Writes the SavedModel from the last checkpoint, by a plain copy of the network in float32.

        So it is the same for every strategy: shards are merged, and neither optimizer nor devices come along.
        """
        tf_keras.mixed_precision.set_global_policy("float32")
        last = checkpoint.path(self._checkpoints, checkpoint.steps(self._checkpoints)[0])
        network = self._restored(last)
        directory = self._fn_args.serving_model_dir
        beside = f"{directory}.partial"
        _remove(directory, beside)
        try:
            export(network, self._target.answers, self._plan.features, self._transform, beside)
            tf.io.gfile.rename(beside, directory)
        finally:
            _remove(beside)

    def _network(self) -> Any:
        plan = self._plan
        given = inputs(plan.features, self._transform.vocabulary_size_by_name)
        return build(plan.model, given, self._target.outputs)

    @functools.cached_property
    def _plain(self) -> Any:
        """A network for weights of checkpoints, under no strategy."""
        with tf.device("CPU:0"):
            return self._network()

    def _restored(self, path: str) -> Any:
        status = tf.train.Checkpoint(network=self._plain).restore(path)
        status.assert_existing_objects_matched().expect_partial()
        return self._plain

    def _evaluate(self, step: int, network: Any) -> None:
        files = train_input.find(self._fn_args.eval_files)
        dataset = train_input.examples(files, self._transform.transformed_feature_spec(), _EVAL_BATCH)
        with Curves(self._fn_args.model_run_dir, "eval", self._plan.training.tensorboard) as curves:
            evaluate(network, self._target, dataset, curves, step)


def _remove(*folders: str) -> None:
    for folder in folders:
        if tf.io.gfile.exists(folder):
            tf.io.gfile.rmtree(folder)
