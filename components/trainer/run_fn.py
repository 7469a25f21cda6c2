"""The run_fn that TFX's Trainer calls: build, train and export the configured model, or call the user's run_fn.

In a cluster every task except the servers calls it; what each does depends on its role.
"""

from __future__ import annotations

import contextlib
import functools
import math
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras
from tensorflow_metadata.proto.v0 import schema_pb2

from components.base import user_code
from components.base.errors import InputError, MachineError
from components.data import skew_sample
from components.features import feature_names, images
from components.features.compact import CompactFeatures
from components.models import folds
from components.models.build import build
from components.models.config import Kind
from components.models.inputs import inputs
from components.results.request_schema import RequestSchema
from components.trainer import (
    checkpoint,
    export_check,
    input_pipeline,
    item_index,
    item_to_item,
    request_columns,
    strategy,
    warm_start,
)
from components.trainer.augmentation import augmented
from components.trainer.calibration import Calibrate, calibration
from components.trainer.checkpoint_evaluation import Scores, evaluate, follow, scores
from components.trainer.cluster import tf_config
from components.trainer.cluster.loopback import limit_to_loopback
from components.trainer.cluster.tf_config import Role
from components.trainer.config import AugmentationConfig
from components.trainer.early_stopping import EarlyStopping
from components.trainer.export import export
from components.trainer.input_columns import Columns
from components.trainer.input_pipeline import Batch, InputPipeline, PixelCache
from components.trainer.item_index import ItemIndex
from components.trainer.plan import TrainingPlan
from components.trainer.prediction_head import prediction_head
from components.trainer.strategy import Distribution
from components.trainer.tensorboard_writer import TensorBoardWriter
from components.trainer.training_loop import Folders, Learner, TrainingLoop
from components.trainer.validation_part import Selection, ValidationPart

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs

    from components.trainer.forest_training import ForestTraining

PATH = f"{__name__}.run_fn"
"""Import path for TFX's Trainer."""

_EVAL_BATCH = 4096
_EVAL_BYTES = 64 << 20
"""The greatest size of the expanded features of a batch that is evaluated; see `CompactFeatures`."""


def run_fn(fn_args: FnArgs) -> None:
    """Trains and exports.

    Args:
      fn_args: TFX's FnArgs; `custom_config["plan"]` is a TrainingPlan as JSON, `custom_config["checkpoints"]` the
        folder for checkpoints.

    Raises:
      InputError: the label cannot be learned, the strategy does not fit, or the user's run_fn failed or wrote no model.
      SystemExit: the process received SIGTERM.
    """
    plan = TrainingPlan.model_validate_json(fn_args.custom_config["plan"])
    role = tf_config.role()
    if plan.model.run_fn:
        with limit_to_loopback(role):
            user_code.call(plan.model.run_fn, fn_args)
        _check_model(plan.model.run_fn, fn_args.serving_model_dir)
        return
    with contextlib.nullcontext() if role and not role.is_lead else export_check.waiting_process():
        _run(plan, fn_args, role)


def _run(plan: TrainingPlan, fn_args: FnArgs, role: Role | None) -> None:
    """Do what the role of this process is in a training of the configured model."""
    strategy.prepare(role, plan.training.precision)
    if role is not None and role.is_evaluator:
        Training(plan, fn_args).evaluate_checkpoints()
        return
    # Collective operations have to be set up before the first op of any kind.
    distribution = strategy.distribute(plan.training, role)
    training = Training(plan, fn_args)
    training.fit(distribution)
    if distribution.is_lead:
        training.export()
    if plan.training.strategy.kind == "multi_worker":
        strategy.wait_for_all_replicas(distribution.strategy)


class Training:
    """One model's training, as this process runs it: training, evaluation of checkpoints, export.

    Args:
      plan: features, model and training.
      fn_args: TFX's FnArgs; `custom_config["checkpoints"]` is the folder for checkpoints.
      validate: whether the validation part is held out and checkpoints are compared on it, also without early stopping.

    Raises:
      InputError: the label cannot be learned.
    """

    def __init__(self, plan: TrainingPlan, fn_args: FnArgs, validate: bool = False) -> None:
        self._plan = plan
        self._fn_args = fn_args
        self._transform = tft.TFTransformOutput(fn_args.transform_graph_path)
        training = plan.training
        self.head = prediction_head(
            plan.features, self._transform, training.class_weights, plan.model, training.label_weights
        )
        self._checkpoints: str = fn_args.custom_config["checkpoints"]
        self._spec = self._transform.transformed_feature_spec()
        # It decides which rows are read, and is no input of the network.
        self._spec.pop(feature_names.ROW_KEY, None)
        self._features = inputs(plan.features, self._transform.vocabulary_size_by_name)
        self._compact = CompactFeatures.find(plan.features.features)
        encoded = self._compact.images
        self._decode = self._compact.expand if self._compact else None
        self._pixel_cache = None
        if encoded:
            self._pixel_cache = PixelCache(self._compact.pack, self._compact.unpack, images.row_bytes(encoded))
        changes = plan.training.augmentation
        self._augment = functools.partial(augmented, encoded, changes) if changes != AugmentationConfig() else None
        self._forest: ForestTraining | None = None
        if plan.model.has_forest:
            # A network does not wait for the import of YDF.
            from components.trainer.forest_training import ForestTraining

            files = input_pipeline.find(fn_args.train_files)
            self._forest = ForestTraining(plan, self.head, self._features, files, self._spec, self._compact)
        compares = plan.training.early_stopping or plan.training.folds or validate or self._forest
        self._best = EarlyStopping(self._checkpoints, plan.training.early_stopping) if compares else None

    @property
    def validation_loss(self) -> float:
        """The lowest mean loss on the validation part; infinite without one."""
        return self._forest.loss if self._forest else self._best.loss if self._best else math.inf

    def fit(self, distribution: Distribution) -> None:
        """Trains the network until all steps are done, or early stopping ends it, see TrainingLoop; then the forest.

        Args:
          distribution: strategy and role of this process.

        Raises:
          InputError: the batch size does not fit the strategy, or the loss is no longer finite.
          SystemExit: this process received SIGTERM.
        """
        if self._plan.model.has_network:
            self._fit_network(distribution)
        if self._forest and distribution.is_lead:
            # Nothing of a forest is saved before it is complete, so SIGTERM ends this process at once.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._forest.select(self._validation_part, self._validation_logits(self._network()))

    def _fit_network(self, distribution: Distribution) -> None:
        config, run = self._plan.training, self._fn_args.model_run_dir
        batch_size = strategy.replica_batch_size(config, distribution.strategy.num_replicas_in_sync)
        tf_keras.utils.set_random_seed(config.seed)
        evaluates = config.evaluator and not config.strategy.is_cluster
        validates = self._best is not None and distribution.is_lead
        with (
            self._curves("eval") if evaluates else contextlib.nullcontext() as evaluation,
            self._curves("validation") if validates else contextlib.nullcontext() as validation,
        ):
            TrainingLoop(
                config=config,
                distribution=distribution,
                learner=Learner(self.build, self.head, self._warm_start, self._plan.model.frozen_steps),
                input_pipeline=self.input_pipeline(batch_size),
                folders=Folders(self._checkpoints, None if distribution.is_lead else f"{run}/checkpoints", run),
                on_checkpoint=functools.partial(self._on_checkpoint, evaluation, validation),
                is_over=distribution.is_lead and self._best is not None and self._best.is_over,
                reads_checkpoints=self._best is not None,
            ).run()

    def input_pipeline(self, batch_size: int) -> InputPipeline:
        """Return the rows of the training split, without the validation part, if there is one.

        Args:
          batch_size: examples per batch of one replica.
        """
        files = input_pipeline.find(self._fn_args.train_files)
        others = self._selection(inside=False) if self._best else None
        config, pixels = self._plan.training, self._pixel_cache
        return InputPipeline(files, self._spec, config, batch_size, others, self._decode, self._augment, pixels)

    def evaluate_checkpoints(self) -> None:
        """Evaluate each checkpoint that other tasks write, until the last."""
        steps = self._plan.training.steps
        with self._curves("eval") as curves:
            evaluate_next = functools.partial(self._evaluate, curves)
            follow(self._checkpoints, steps, self._restored, evaluate_next, self._has_ended)

    def scores(self) -> dict[Kind, Scores]:
        """Return what the trained model has on the rows of the eval split; of an ensemble also its parts, by kind."""
        network = self._network()
        models = self._forest.finish_parts(network) if self._forest else {self._plan.model.kind: network}
        # The files are read once for each model: all rows of the split may not fit into memory.
        return {
            kind: scores(model, self.head, self._decoded(self._evaluation_batches())) for kind, model in models.items()
        }

    def export(self) -> None:
        """Write the SavedModel from the last checkpoint, or the best one, by a plain copy of the network in float32.

        So it is the same for every strategy: shards are merged, and neither optimizer nor devices are saved. What the
        network predicts for the sample of Transform is written beside it.

        Raises:
          MachineError: Transform has written no sample, or the SavedModel differs from what was trained.
        """
        sample = skew_sample.read(self._fn_args.transform_graph_path)
        if sample is None:
            raise MachineError(
                f"{self._fn_args.transform_graph_path}: expected a sample of the transformed rows, received none",
                "run Transform again with --no-cache",
            )
        network = self._network()
        index = self._index(network) if self._plan.features.task == "retrieval" else None
        # An index makes predictions of the vectors, which are not calibrated.
        outputs = self.outputs_by_name(network) if index is None else self.head.outputs_by_name
        if self._forest:
            network = self._forest.finish(network)
        directory = self._fn_args.serving_model_dir
        temporary = f"{directory}.partial"
        _remove(directory, temporary)
        try:
            schema = self._request_schema()
            predictions = export(
                network, outputs, self._plan.features, self._transform, temporary, index, sample, schema
            )
            request_columns.write(schema, temporary)
            left_out = index.user if index else None
            warm_start.describe(network, self._plan.features, self._transform, temporary, left_out)
            if predictions is not None:
                # Beside the model, and so not in the pushed version: these are rows of the training data.
                skew_sample.write_predictions(predictions, directory.rpartition("/")[0])
            tf.io.gfile.rename(temporary, directory)
        finally:
            _remove(temporary)

    def _request_schema(self) -> RequestSchema:
        """Describe the rows that the model takes; without the schema (a search of candidates), by the graph's types."""
        features, arguments = self._plan.features.features, self._fn_args
        specs = self._transform.raw_feature_spec()
        return request_columns.describe_requests(
            request_columns.read_schema(arguments.schema_path) if arguments.schema_path else schema_pb2.Schema(),
            request_columns.read_statistics(arguments.custom_config.get("statistics", {})),
            {name: specs[name] for name in features.columns_read},
            features.histories,
        )

    def _index(self, network: tf_keras.Model) -> ItemIndex:
        files = input_pipeline.find(self._fn_args.train_files)
        plan = self._plan
        build_index = item_to_item.build if plan.model.is_item_to_item else item_index.build
        return build_index(network, plan.model, plan.features, self._transform, files, self._spec, plan.exclude_seen)

    def outputs_by_name(self, network: tf_keras.Model | None) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
        """Return what turns a network's logits into the outputs of a prediction, calibrated on the validation part.

        Args:
          network: the trained one; None if the model has none.
        """
        calibrate = self._calibration(network)
        return lambda logits: self.head.outputs_by_name(calibrate(self.head.joined(logits)))

    def _warm_start(self, network: tf_keras.Model) -> None:
        if self._plan.training.warm_start:
            new_ids = self._plan.training.new_ids
            warm_start.initialize(network, self._fn_args.base_model, self._plan.features, self._transform, new_ids)

    def _network(self) -> tf_keras.Model | None:
        """Return the trained network; None if the model has none."""
        if self._plan.model.is_item_to_item:
            return item_to_item.network(self._plan.features, self._features)
        if not self._plan.model.has_network:
            return None
        best = self._best.path if self._best else None
        return self._restored(best or checkpoint.path(self._checkpoints, checkpoint.steps(self._checkpoints)[0]))

    def build(self) -> tf_keras.Model:
        """Make the network, with initial weights."""
        # Otherwise layers without a name of their own would be numbered on from the last network of this process.
        tf_keras.backend.reset_uids()
        build_one = functools.partial(build, self._plan.model, self._features, self.head.outputs)
        return folds.cross_validated(build_one, self._folds) if self._folds > 1 else build_one()

    @property
    def _folds(self) -> int:
        return self._validation_part.folds if self._best else 1

    @functools.cached_property
    def _validation_part(self) -> ValidationPart:
        key = self._plan.features.row_key
        files = input_pipeline.find(self._fn_args.train_files)
        return input_pipeline.validation_part(files, self._spec, self._plan.training, key.by if key else "row")

    def _selection(self, inside: bool) -> Selection:
        """Return the rows to validate on, or to train on; with folds, all rows for both."""
        return Selection(self._validation_part, None if self._folds > 1 else inside)

    @functools.cached_property
    def _validation_rows(self) -> list[Batch]:
        """The rows of the validation part, which is small, in memory: its files have all rows of the split.

        They are compact, since the pixels of all images may be large.
        """
        files = input_pipeline.find(self._fn_args.train_files)
        rows = self._selection(inside=True)
        return list(input_pipeline.evaluation_batches(files, self._spec, self._eval_batch, rows))

    @property
    def _eval_batch(self) -> int:
        return max(1, min(_EVAL_BATCH, _EVAL_BYTES // max(1, self._compact.row_bytes)))

    def _evaluation_batches(self) -> Iterator[Batch]:
        """Yield the rows of the eval split, in their compact form."""
        files = input_pipeline.find(self._fn_args.eval_files)
        return input_pipeline.evaluation_batches(files, self._spec, self._eval_batch)

    def _decoded(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches with what the network reads; a batch at a time is decoded."""
        if self._decode is None:
            yield from batches
            return
        decode = tf.function(self._decode, autograph=False)
        for features, *rest in batches:
            yield decode(features), *rest

    def _calibration(self, network: tf_keras.Model | None) -> Calibrate:
        kind = self._plan.training.calibration
        if kind == "none" or not self._best or self.head.scale:
            return lambda logits: logits
        logits = self._forest.validation_logits if self._forest else self._validation_logits(network)
        labels = np.concatenate([label.numpy() for _, label, *_ in self._validation_rows])
        weights = [each.numpy() for _, _, *weight in self._validation_rows for each in weight]
        return calibration(kind, self.head, logits, labels, np.concatenate(weights) if weights else None)

    def _validation_logits(self, network: tf_keras.Model | None) -> npt.NDArray[np.float32] | None:
        """Return the network's logits of the validation rows, [rows, outputs]; None if the model has no network."""
        if network is None:
            return None

        def joined(features: Columns) -> tf.Tensor:
            inputs, fold = folds.split(features)
            return self.head.joined(folds.held_out(network(inputs, training=False), fold))

        predict = tf.function(joined, autograph=False)
        rows = self._decoded(self._validation_rows)
        return np.concatenate([predict(features).numpy() for features, *_ in rows])

    @functools.cached_property
    def _plain(self) -> tf_keras.Model:
        """A network in float32 for the weights of checkpoints, under no strategy."""
        policy = tf_keras.mixed_precision.global_policy()
        tf_keras.mixed_precision.set_global_policy("float32")
        try:
            with tf.device("CPU:0"):
                return self.build()
        finally:
            tf_keras.mixed_precision.set_global_policy(policy)

    def _restored(self, path: str) -> tf_keras.Model:
        status = tf.train.Checkpoint(network=self._plain).read(path)
        status.assert_existing_objects_matched().expect_partial()
        return self._plain

    def _on_checkpoint(
        self,
        evaluation: TensorBoardWriter | None,
        validation: TensorBoardWriter | None,
        step: int,
        network: tf_keras.Model,
    ) -> bool:
        """Evaluate a checkpoint for these curves; return whether early stopping ends the training."""
        if evaluation:
            self._evaluate(evaluation, step, network)
        if not self._best or not validation:
            return False
        if step <= self._best.last:
            return self._best.is_over
        if self._plan.training.strategy.is_cluster:
            # The variables of a cluster are on several machines.
            network = self._restored(checkpoint.path(self._checkpoints, step))
        loss = evaluate(network, self.head, self._decoded(self._validation_rows), validation, step)
        return self._best.update(step, loss, network)

    def _evaluate(self, curves: TensorBoardWriter, step: int, network: tf_keras.Model) -> None:
        """Write a point of the curves on the eval split."""
        evaluate(network, self.head, self._decoded(self._evaluation_batches()), curves, step)

    def _curves(self, kind: str) -> TensorBoardWriter:
        """Open curves; one file for all checkpoints, since the report reads a limited number of files."""
        return TensorBoardWriter(self._fn_args.model_run_dir, kind, self._plan.training.tensorboard)

    def _has_ended(self) -> bool:
        """Whether another task has ended the training by early stopping."""
        patience = self._plan.training.early_stopping
        return patience is not None and EarlyStopping(self._checkpoints, patience).is_over


def _remove(*folders: str) -> None:
    for folder in folders:
        if tf.io.gfile.exists(folder):
            tf.io.gfile.rmtree(folder)


def _check_model(path: str, folder: str) -> None:
    """Check that the user's run_fn has written a SavedModel; only the lead of a cluster has to."""
    role = tf_config.role()
    if (role is None or role.is_lead) and not tf.io.gfile.exists(f"{folder}/saved_model.pb"):
        raise InputError(
            f"{path}: expected a SavedModel in fn_args.serving_model_dir, received none",
            "save the model there: `model.save(fn_args.serving_model_dir, save_format='tf')`",
        )
