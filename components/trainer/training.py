"""One training in this process: the network, the trees, the loss on the eval split, and the calibrated outputs."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.models import folds
from components.models.config import Kind
from components.models.inputs import inputs
from components.results.decision import Decisions
from components.trainer import decision, item_to_item
from components.trainer.anomaly_score import fit_score
from components.trainer.calibration import fit_calibration
from components.trainer.checkpoint_evaluation import Scores, compute_scores
from components.trainer.head_creation import create_head
from components.trainer.input_columns import Columns
from components.trainer.network_training import NetworkTraining
from components.trainer.plan import TrainingPlan
from components.trainer.prediction_head import AnomalyHead
from components.trainer.strategy import Distribution
from components.trainer.training_rows import TrainingRows

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs

    from components.trainer.forest_training import ForestTraining

Outputs = Callable[[tf.Tensor], dict[str, tf.Tensor]]
"""Logits of the model → the outputs of a prediction, by name."""


class Training:
    """One model's training, as this process runs it.

    Args:
      plan: The features, the model and the training section.
      fn_args: TFX's FnArgs; `custom_config["checkpoints"]` is the folder for checkpoints.
      validate: Whether rows are held out to compare checkpoints even if the training does not stop early.

    Attributes:
      transform: The transform graph.
      head: The loss, the metrics and the outputs of the task.
      rows: The rows of both splits.
      network: The training of the network.
      forest: The training of the trees; None if the model does not have any.

    Raises:
      InputError: If the label cannot be learned.
    """

    def __init__(self, plan: TrainingPlan, fn_args: FnArgs, validate: bool = False) -> None:
        self._plan = plan
        self.transform = tft.TFTransformOutput(fn_args.transform_graph_path)
        config, model = plan.training, plan.model
        self.head = create_head(plan.features, self.transform, config.class_weights, model, config.label_weights)
        self._features = inputs(plan.features, self.transform.vocabulary_size_by_name)
        self.rows = TrainingRows(plan, fn_args, self.transform.transformed_feature_spec(), validate or plan.holds_out)
        self.network = NetworkTraining(plan, fn_args, self.transform, self._features, self.head, self.rows)
        self._converted: tf_keras.Model | None = None
        self.forest: ForestTraining | None = None
        if model.has_forest:
            # Import YDF only here, because a network does not need it.
            from components.trainer.forest_training import ForestTraining

            self.forest = ForestTraining(plan, self.head, self._features, self.rows)

    @property
    def validation_loss(self) -> float:
        """The lowest mean loss on the rows that are held out; infinite without such rows."""
        return (self.forest or self.network).validation_loss

    def fit(self, distribution: Distribution, pause_at: int | None = None) -> None:
        """Train the network, until all steps are done or early stopping ends it, and the trees; or call the function.

        Args:
          distribution: The strategy and the role of this process.
          pause_at: Step at which the training of the network ends for now, with a checkpoint from which another process
            can continue. If None, it does not pause.

        Raises:
          InputError: If the batch size does not fit the strategy, or the loss is no longer finite.
          SystemExit: If this process received SIGTERM.
        """
        if self._plan.model.has_network:
            self.network.fit(distribution, pause_at)
        if self.forest and distribution.is_lead:
            # SIGTERM ends this process at once, because a forest is not saved before it is complete.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self.forest.select(self._predict_validation_rows(self.restore_network()))
        if function := self._plan.model.train:
            from components.trainer.frameworks import function_training

            # SIGTERM ends the function, as it ends the training of trees.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._converted = function_training.train(function, self._plan, self.head, self._features, self.rows)

    def restore_network(self) -> tf_keras.Model | None:
        """Return the trained network, or the converted model of a user's function; None if the model has neither."""
        if self._converted is not None:
            return self._converted
        if self._plan.model.is_item_to_item:
            return item_to_item.build_network(self._plan.features, self._features)
        return self.network.restore() if self._plan.model.has_network else None

    def compute_scores(self) -> dict[Kind, Scores]:
        """Compute kind → losses and metrics on the eval split; an ensemble also has an entry per part."""
        network = self.restore_network()
        models = self.forest.finish_parts(network) if self.forest else {self._plan.model.kind: network}
        # Read the files once per model, because the rows of the split may not fit into memory.
        return {kind: compute_scores(model, self.head, self.rows.eval_batches()) for kind, model in models.items()}

    def calibrate_outputs(self, network: tf_keras.Model | None) -> Outputs:
        """Return the function from logits to the outputs of a prediction, calibrated on the rows that are held out.

        Args:
          network: The trained network; None if the model does not have one.
        """
        return self._calibrate(functools.cache(lambda: self._compute_validation_logits(network)))

    def decide_outputs(self, network: tf_keras.Model | None) -> tuple[Outputs, Decisions]:
        """Return the calibrated outputs with the decisions of the plan, and how these were chosen.

        Args:
          network: The trained network; None if the model does not have one.

        Raises:
          InputError: If all rows that are held out have the same label.
        """
        get_logits = functools.cache(lambda: self._compute_validation_logits(network))
        outputs, goal, labels = self._calibrate(get_logits), self._plan.decide, self._plan.features.labels
        if goal is None:
            return outputs, Decisions({})
        if not self.rows.holds_out:
            decisions = decision.choose(goal, labels)
        else:
            with tf.device("CPU:0"):
                probabilities = outputs(tf.constant(get_logits()))
            decisions = decision.choose(goal, labels, probabilities, *self.rows.validation_labels())
        return decision.add_classes(outputs, decisions), decisions

    def _calibrate(self, get_logits: Callable[[], npt.NDArray[np.float32]]) -> Outputs:
        """Return the function from logits to outputs; `get_logits` returns the logits of the rows that are held out."""
        head, kind = self.head, self._plan.training.calibration
        if isinstance(head, AnomalyHead):
            _, *weight = self.rows.validation_labels()
            score = fit_score(head, get_logits(), *weight)
            return lambda logits: score(head.join_members(logits))
        if kind == "none" or not self.rows.holds_out or head.scale:
            return lambda logits: head.outputs_by_name(head.join_members(logits))
        calibrate = fit_calibration(kind, head, get_logits(), *self.rows.validation_labels())
        return lambda logits: head.outputs_by_name(calibrate(head.join_members(logits)))

    def _compute_validation_logits(self, network: tf_keras.Model | None) -> npt.NDArray[np.float32]:
        """Return the logits of the rows that are held out, [rows, outputs]."""
        logits: npt.NDArray[np.float32] = (
            self.forest.validation_logits if self.forest else self._predict_validation_rows(network)
        )
        return logits

    def _predict_validation_rows(self, network: tf_keras.Model | None) -> npt.NDArray[np.float32] | None:
        """Return the network's logits of the rows that are held out, [rows, outputs]; None without a network."""
        if network is None:
            return None

        def predict(features: Columns) -> tf.Tensor:
            inputs, fold = folds.split(features)
            return self.head.join_members(folds.select_held_out(network(inputs, training=False), fold))

        compiled = tf.function(predict, autograph=False)
        return np.concatenate([compiled(features).numpy() for features, *_ in self.rows.validation_batches()])
