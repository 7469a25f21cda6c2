"""The training of a network in this process: its steps, the evaluation of its checkpoints, and the trained weights."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.models import folds
from components.models.build import build
from components.models.inputs import Inputs
from components.trainer import checkpoint, pretrained_rows, warm_start
from components.trainer.checkpoint_evaluation import evaluate, follow
from components.trainer.early_stopping import EarlyStopping
from components.trainer.gradient_histograms import GradientProbe
from components.trainer.input_pipeline import InputPipeline
from components.trainer.plan import TrainingPlan
from components.trainer.prediction_head import PredictionHead
from components.trainer.strategy import Distribution
from components.trainer.tensorboard_writer import TensorBoardWriter
from components.trainer.training_loop import Folders, Learner, TrainingLoop
from components.trainer.training_rows import TrainingRows

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs


class NetworkTraining:
    """The training of a plan's network, as this process runs it.

    Args:
      plan: The features, the model and the training section.
      fn_args: TFX's FnArgs; `custom_config["checkpoints"]` is the folder for checkpoints.
      transform: The transform graph.
      features: The inputs of the network.
      head: The loss and the metrics.
      rows: The rows. If some are held out, checkpoints are compared on them, and the best one is kept.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        fn_args: FnArgs,
        transform: tft.TFTransformOutput,
        features: Inputs,
        head: PredictionHead,
        rows: TrainingRows,
    ) -> None:
        self._plan, self._fn_args, self._transform = plan, fn_args, transform
        self._features, self._head, self._rows = features, head, rows
        self._checkpoints: str = fn_args.custom_config["checkpoints"]
        self._best = EarlyStopping(self._checkpoints, plan.training.early_stopping) if rows.holds_out else None

    @property
    def validation_loss(self) -> float:
        """The lowest mean loss on the rows that are held out; infinite without such rows."""
        return self._best.loss if self._best else math.inf

    @property
    def validation_curve(self) -> list[tuple[int, float]]:
        """The step and the loss on the rows that are held out, of every checkpoint; empty without such rows."""
        return self._best.curve if self._best else []

    def build(self) -> tf_keras.Model:
        """Build the network, with initial weights."""
        # Restart the numbers in the names of layers, which otherwise continue from this process's last network.
        tf_keras.backend.reset_uids()
        build_network = functools.partial(build, self._plan.model, self._features, self._head.outputs)
        count = self._rows.folds
        return folds.cross_validated(build_network, count) if count > 1 else build_network()

    def fit(self, distribution: Distribution, pause_at: int | None = None) -> None:
        """Train until all steps are done, or early stopping ends the training; see `Training.fit`."""
        config, events = self._plan.training, self._fn_args.model_run_dir
        tf_keras.utils.set_random_seed(config.seed)
        evaluates = config.evaluator and not config.strategy.is_cluster
        validates = self._best is not None and distribution.is_lead
        probes = config.tensorboard.gradients and distribution.is_lead
        self._rows.check_lists()
        pipeline = self._rows.input_pipeline(distribution.strategy.num_replicas_in_sync)
        with (
            self._open_curves("gradients") if probes else contextlib.nullcontext() as gradients,
            self._open_curves("eval") if evaluates else contextlib.nullcontext() as evaluation,
            self._open_curves("validation") if validates else contextlib.nullcontext() as validation,
        ):
            TrainingLoop(
                config=config,
                distribution=distribution,
                learner=Learner(self.build, self._head, self._initialize, self._plan.model.frozen_steps),
                input_pipeline=pipeline,
                folders=Folders(self._checkpoints, None if distribution.is_lead else f"{events}/checkpoints", events),
                on_checkpoint=functools.partial(
                    self._on_checkpoint, self._probe(gradients, pipeline) if gradients else None, evaluation, validation
                ),
                is_over=distribution.is_lead and self._best is not None and self._best.is_over,
                reads_checkpoints=self._best is not None or probes,
                pause_at=pause_at,
            ).run()

    def evaluate_checkpoints(self) -> None:
        """Evaluate each checkpoint that other tasks write, until the last."""
        with self._open_curves("eval") as curves:
            evaluate_next = functools.partial(self._evaluate, curves)
            follow(self._checkpoints, self._plan.training.steps, self._restore, evaluate_next, self._has_ended)

    def restore(self) -> tf_keras.Model:
        """Return the network in float32, under no strategy, with the weights of the best or the last checkpoint.

        It is a plain copy, so it is the same for every strategy: shards are merged, and it keeps neither the optimizer
        nor the devices.
        """
        best = self._best.path if self._best else None
        return self._restore(best or checkpoint.path(self._checkpoints, checkpoint.steps(self._checkpoints)[0]))

    @functools.cached_property
    def _plain_network(self) -> tf_keras.Model:
        policy = tf_keras.mixed_precision.global_policy()
        tf_keras.mixed_precision.set_global_policy("float32")
        try:
            with tf.device("CPU:0"):
                return self.build()
        finally:
            tf_keras.mixed_precision.set_global_policy(policy)

    def _restore(self, path: str) -> tf_keras.Model:
        status = tf.train.Checkpoint(network=self._plain_network).read(path)
        status.assert_existing_objects_matched().expect_partial()
        return self._plain_network

    def _initialize(self, network: tf_keras.Model) -> None:
        pretrained_rows.assign(network, self._plan.features, self._transform)
        if self._plan.training.warm_start:
            new_ids = self._plan.training.new_ids
            warm_start.initialize(network, self._fn_args.base_model, self._plan.features, self._transform, new_ids)

    def _probe(self, curves: TensorBoardWriter, pipeline: InputPipeline) -> Callable[[int], None]:
        """Return a function that writes the gradients at a checkpoint."""

        @functools.cache
        def create() -> GradientProbe:
            return GradientProbe(self._plain_network, self._head, pipeline, self._plan.training.optimizer.accumulate)

        def write(step: int) -> None:
            self._restore(checkpoint.path(self._checkpoints, step))
            curves.gradients(step, create().compute())

        return write

    def _on_checkpoint(
        self,
        write_gradients: Callable[[int], None] | None,
        evaluation: TensorBoardWriter | None,
        validation: TensorBoardWriter | None,
        step: int,
        network: tf_keras.Model,
    ) -> bool:
        """Evaluate a checkpoint for these curves; return whether early stopping ends the training."""
        if write_gradients:
            write_gradients(step)
        if evaluation:
            self._evaluate(evaluation, step, network)
        if not self._best or not validation:
            return False
        if step <= self._best.last:
            return self._best.is_over
        if self._plan.training.strategy.is_cluster:
            # The variables of a cluster are on several machines.
            network = self._restore(checkpoint.path(self._checkpoints, step))
        loss = evaluate(network, self._head, self._rows.validation_batches(), validation, step)
        return self._best.update(step, loss, network)

    def _evaluate(self, curves: TensorBoardWriter, step: int, network: tf_keras.Model) -> None:
        """Write a point of the curves on the eval split."""
        evaluate(network, self._head, self._rows.eval_batches(), curves, step)

    def _open_curves(self, kind: str) -> TensorBoardWriter:
        """Open one file for all checkpoints, because the report reads a limited number of files."""
        return TensorBoardWriter(self._fn_args.model_run_dir, kind, self._plan.training.tensorboard)

    def _has_ended(self) -> bool:
        """Whether another task has ended the training by early stopping."""
        patience = self._plan.training.early_stopping
        return patience is not None and EarlyStopping(self._checkpoints, patience).is_over
