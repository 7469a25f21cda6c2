"""The training of a model's forest: choose its shape, and the weights of an ensemble, then train it on all rows."""

from __future__ import annotations

import logging
import math
import time

import numpy as np
import tf_keras

from components.features import feature_names
from components.models.config import Kind
from components.models.forest import Floats, Forest, MatrixLayer, ensemble, forest, tree_inputs
from components.models.inputs import Inputs
from components.models.linear_terms import LinearTerms
from components.trainer import input_pipeline
from components.trainer.ensemble_weights import choose_weights, mix
from components.trainer.forest_learner import ForestLearner, read
from components.trainer.linear_learner import LinearLearner, SelectedLinear
from components.trainer.plan import TrainingPlan
from components.trainer.prediction_head import PredictionHead
from components.trainer.training_rows import TrainingRows
from components.trainer.validation_part import Selection

_BATCH, _BATCH_BYTES = 65_536, 64 << 20
"""Maximum number of rows that are read at once, and maximum size of their expanded features in bytes."""


class ForestTraining:
    """The training of a model's forest, and the weights of its mean with a network and a linear model.

    Args:
      plan: The model and the training section.
      head: The loss and the outputs of the task.
      features: All features.
      rows: The rows of the training split.

    Attributes:
      validation_loss: The loss on the rows that are held out, or on all rows with folds; set by `select`.
      validation_logits: The logits of these rows, float32 [rows, outputs]; set by `select`.
    """

    def __init__(self, plan: TrainingPlan, head: PredictionHead, features: Inputs, rows: TrainingRows) -> None:
        inputs = tree_inputs(plan.features, features)
        seconds = 60 * (plan.training.max_minutes or math.inf)
        signs = {column: 1 if direction == "increasing" else -1 for column, direction in plan.model.monotone.items()}
        directions = {
            feature.name: signs[feature.columns[0]]
            for feature in plan.features.features.declared
            if feature.columns[0] in signs and features.features[feature.name].ordered
        }
        # The other half of the time is for the forest of all rows.
        self._learner = ForestLearner(plan.model, head, inputs, plan.training.seed, directions, seconds / 2)
        self._head, self._features, self._rows = head, features, rows
        targets = [name for name in (feature_names.LABEL, feature_names.WEIGHT) if name in rows.spec]
        self._spec = {name: rows.spec[name] for name in (*(tree_input.feature for tree_input in inputs), *targets)}
        self._has_linear = plan.model.loss is None
        self._linear: SelectedLinear | None = None
        self.validation_loss = math.inf

    def select(self, network_logits: Floats | None) -> None:
        """Choose the shape of the forest, and the weights of the ensemble, by the loss on the rows that are held out.

        A linear model is a part of the ensemble if it lowers the loss by more than a standard error.

        Args:
          network_logits: The network's logits of these rows, [rows, outputs]; None without a network.

        Raises:
          InputError: If the rows do not fit into memory.
        """
        started = time.monotonic()
        compact, part = self._rows.compact, self._rows.validation_part
        size = max(1, min(_BATCH, _BATCH_BYTES // max(1, compact.only(self._spec).row_bytes)))
        selection = Selection(part, inside=None)
        batches = input_pipeline.evaluation_batches(self._rows.train_files, self._spec, size, selection)
        rows = read((compact.expand(features), *columns) for features, *columns in batches)
        folds = rows.features.pop(feature_names.FOLD)
        logging.info("training trees on %d rows", np.sum(folds != 0) if part.folds == 1 else len(folds))
        self._all_rows, validation = rows, rows.where(folds >= 0)
        masks = [mask for fold in range(part.folds) if (mask := folds == fold).any()]
        self._selected = self._learner.select(rows, masks)
        self.validation_loss, self.validation_logits = self._selected.loss, self._selected.logits
        if network_logits is None:
            return

        def compute_loss(logits: Floats) -> float:
            return self._learner.loss(validation, logits)

        members = [network_logits, self._selected.logits]
        self._weights = choose_weights(members, compute_loss)
        self.validation_logits = mix(members, self._weights)
        is_in_time = time.monotonic() < started + self._learner.seconds
        linear = LinearLearner(self._learner).select(rows, masks) if self._has_linear and is_in_time else None
        if linear:
            weights = choose_weights([*members, linear.logits], compute_loss)
            logits = mix([*members, linear.logits], weights)
            if self._learner.is_lower(logits, self.validation_logits, validation):
                self._linear, self._weights, self.validation_logits = linear, weights, logits
        self.validation_loss = compute_loss(self.validation_logits)
        logging.info(
            "loss on the validation part: network %.5f, forest %.5f, their mean%s with the weights %s %.5f",
            compute_loss(network_logits),
            self._selected.loss,
            " and a linear model's" if self._linear else "",
            ", ".join(f"{weight:.2f}" for weight in self._weights),
            self.validation_loss,
        )

    def finish(self, network: tf_keras.Model | None) -> tf_keras.Model:
        """Train the forest on all rows; return the model to export, from transformed features to logits.

        Args:
          network: The trained network, if the model has one.
        """
        return self.finish_parts(network)["gbt" if network is None else "ensemble"]

    def finish_parts(self, network: tf_keras.Model | None) -> dict[Kind, tf_keras.Model]:
        """Train the forest on all rows; return the models from transformed features to logits, by kind.

        Args:
          network: The trained network, if the model has one; then its mean with the forest is a model, too.
        """
        trees = self._learner.refit(self._selected, self._all_rows)
        parts: dict[Kind, tf_keras.Model] = {"gbt": forest(trees, self._features)}
        if network is not None:
            others: list[MatrixLayer] = [Forest(trees, name="forest")]
            if self._linear:
                linear = LinearLearner(self._learner).fit(self._all_rows, self._linear.penalty)
                others += [LinearTerms(linear, name="linear")] if linear else []
            joint = ensemble(network, self._head.join_members, others, self._weights, self._features)
            parts |= {"tabm": network, "ensemble": joint}
        return parts
