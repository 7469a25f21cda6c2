"""One model's training, as this process sees it: fit, look at checkpoints, export."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.errors import InputError
from components.models.build import build
from components.models.inputs import inputs
from components.trainer import checkpoint, warm
from components.trainer import input as train_input
from components.trainer.best import Best
from components.trainer.cluster.roles import Role
from components.trainer.curves import Curves
from components.trainer.evaluate import evaluate, follow, measure
from components.trainer.export import export
from components.trainer.fit import Fit
from components.trainer.plan import TrainingPlan
from components.trainer.target import Target, target

_EVAL_BATCH = 4096


class Training:
    """One model's training, as this process sees it.

    Args:
      plan: features, model and training.
      fn_args: TFX's FnArgs; `custom_config["checkpoints"]` is the folder for checkpoints.

    Raises:
      InputError: the label cannot be learned.
    """

    def __init__(self, plan: TrainingPlan, fn_args: Any) -> None:
        self._plan = plan
        self._fn_args = fn_args
        self._transform = tft.TFTransformOutput(fn_args.transform_graph_path)
        self._target: Target = target(plan.features, self._transform, plan.training.class_weights)
        self._checkpoints: str = fn_args.custom_config["checkpoints"]

    def fit(self, chosen: Any, role: Role | None, at_checkpoint: Callable[[int, Any], object] | None = None) -> None:
        """Trains to the end, see Fit.

        Args:
          chosen: the strategy of this process.
          role: this process in its cluster; None if it is alone.
          at_checkpoint: called with each checkpoint's step and network, instead of what the plan's `evaluator` asks.

        Raises:
          InputError: the batch does not fit the strategy, or the loss is no longer finite.
          SystemExit: this process was asked to end by SIGTERM.
        """
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
        if self._best and self._best.over:
            return
        inline = (config.evaluator or self._best is not None) and not config.strategy.is_cluster
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
            at_checkpoint or (self._evaluate if inline else lambda step, network: False),
            self._take_over if config.warm_start else lambda network: None,
        ).to_the_end()

    def evaluate_checkpoints(self) -> None:
        """Looks at each checkpoint that others write, until the last."""
        follow(self._checkpoints, self._plan.training.steps, self._restored, self._evaluate)

    def export(self) -> None:
        """Writes the SavedModel from the last checkpoint, or the best one, by a plain copy of the network in float32.

        So it is the same for every strategy: shards are merged, and neither optimizer nor devices come along.
        """
        tf_keras.mixed_precision.set_global_policy("float32")
        best = self._best.path if self._best else None
        network = self._restored(best or checkpoint.path(self._checkpoints, checkpoint.steps(self._checkpoints)[0]))
        directory = self._fn_args.serving_model_dir
        beside = f"{directory}.partial"
        _remove(directory, beside)
        try:
            export(network, self._answers, self._plan.features, self._transform, beside)
            warm.describe(network, self._plan.features, self._transform, beside)
            tf.io.gfile.rename(beside, directory)
        finally:
            _remove(beside)

    def _take_over(self, network: Any) -> None:
        warm.take_over(network, self._fn_args.base_model, self._plan.features, self._transform)

    def _answers(self, logits: Any) -> dict[str, Any]:
        return self._target.answers(self._target.joined(logits))

    def _network(self) -> Any:
        plan = self._plan
        # Else a layer that the user has not named would have another name in every network of this process.
        tf_keras.backend.reset_uids()
        given = inputs(plan.features, self._transform.vocabulary_size_by_name)
        return build(plan.model, given, self._target.outputs)

    @functools.cached_property
    def _best(self) -> Best | None:
        patience = self._plan.training.early_stopping
        return Best(self._checkpoints, patience) if patience else None

    @functools.cached_property
    def _plain(self) -> Any:
        """A network for weights of checkpoints, under no strategy."""
        with tf.device("CPU:0"):
            return self._network()

    def _restored(self, path: str) -> Any:
        status = tf.train.Checkpoint(network=self._plain).read(path)
        status.assert_existing_objects_matched().expect_partial()
        return self._plain

    def measure(self, network: Any) -> dict[str, float]:
        """The mean loss of a network on the eval split, and each metric, by name."""
        values: dict[str, float] = measure(network, self._target, self._eval_examples())[0]
        return values

    def _evaluate(self, step: int, network: Any) -> bool:
        """A look at a checkpoint; says whether training has gone on for too long."""
        with Curves(self._fn_args.model_run_dir, "eval", self._plan.training.tensorboard) as curves:
            loss = evaluate(network, self._target, self._eval_examples(), curves, step)
        return self._best is not None and self._best.look(step, loss, network)

    def _eval_examples(self) -> Any:
        files = train_input.find(self._fn_args.eval_files)
        return train_input.examples(files, self._transform.transformed_feature_spec(), _EVAL_BATCH)


def _remove(*folders: str) -> None:
    for folder in folders:
        if tf.io.gfile.exists(folder):
            tf.io.gfile.rmtree(folder)
