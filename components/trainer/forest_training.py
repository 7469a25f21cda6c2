"""The training of a model's forest: choose its shape, and its weight in a mean with other models; then train it on all
rows.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tf_keras

from components.models.config import Kind
from components.models.forest import Floats, Forest, MatrixLayer, Trees, ensemble, forest, tree_inputs
from components.models.inputs import Inputs
from components.models.linear_terms import LinearTerms, LinearWeights
from components.trainer.ensemble_weights import choose_weights, mix
from components.trainer.forest_learner import ForestLearner
from components.trainer.linear_learner import LinearLearner
from components.trainer.memory_rows import read_training_split
from components.trainer.plan import TrainingPlan
from components.trainer.prediction_head import PredictionHead
from components.trainer.training_rows import TrainingRows


class Weights(NamedTuple):
    """The weights of a mean of logits; their sum is 1."""

    network: float
    forest: float
    linear: float


_ONLY_FOREST = Weights(0.0, 1.0, 0.0)


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
        self._names = [tree_input.feature for tree_input in inputs]
        self._has_linear = plan.model.loss is None
        self._kind: Kind = plan.model.kind
        self._deadline = math.inf
        self._penalty = math.nan
        self._weights: dict[Kind, Weights] = {"gbt": _ONLY_FOREST}
        self.validation_loss = math.inf

    def select(self, network_logits: Floats | None) -> None:
        """Choose the shape of the forest, and the weights of the mean, by the loss on the rows that are held out.

        A linear model is a part of a mean if it lowers the loss by more than a standard error.

        Args:
          network_logits: The network's logits of these rows, [rows, outputs]; None without a network.

        Raises:
          InputError: If the rows do not fit into memory.
        """
        started = time.monotonic()
        self._deadline = started + 2 * self._learner.seconds
        split = read_training_split(self._rows, self._names)
        self._all_rows = split.rows
        rows, folds, *_ = split = split.without_unused()
        logging.info("training trees on %d rows", np.sum(folds != 0) if split.part.folds == 1 else len(folds))
        validation, masks = rows.where(folds >= 0), split.list_masks()
        self._selected = self._learner.select(rows, masks)
        self.validation_loss, self.validation_logits = self._selected.loss, self._selected.logits
        if self._kind == "gbt":
            return
        is_in_time = time.monotonic() < started + self._learner.seconds
        linear = LinearLearner(self._learner).select(rows, masks) if self._has_linear and is_in_time else None
        self._penalty = linear.penalty if linear else math.nan

        def compute_loss(logits: Floats) -> float:
            return self._learner.loss(validation, logits)

        def choose_mean(*members: Floats) -> tuple[Floats, Floats]:
            """Return the weights of the members and of the linear model, and the logits of their mean."""
            weights = choose_weights(members, compute_loss)
            logits = mix(members, weights)
            if linear:
                other_weights = choose_weights([*members, linear.logits], compute_loss)
                other_logits = mix([*members, linear.logits], other_weights)
                if self._learner.is_lower(other_logits, logits, validation):
                    return other_weights, other_logits
            return np.append(weights, 0.0), logits

        (forest_weight, linear_weight), logits = choose_mean(self._selected.logits)
        self._weights["gbt_linear"] = Weights(0.0, forest_weight, linear_weight)
        if network_logits is not None:
            weights, logits = choose_mean(network_logits, self._selected.logits)
            self._weights["ensemble"] = Weights(*weights)
            logging.info("loss on the validation part: network %.5f", compute_loss(network_logits))
        self.validation_loss, self.validation_logits = compute_loss(logits), logits
        logging.info(
            "loss on the validation part: forest %.5f, mean with the weights %s: %.5f",
            self._selected.loss,
            ", ".join(f"{part} {weight:.2f}" for part, weight in self._weights[self._kind]._asdict().items()),
            self.validation_loss,
        )

    def finish(self, network: tf_keras.Model | None) -> tf_keras.Model:
        """Train the parts other than the network on all rows; return the model from transformed features to logits.

        Args:
          network: The trained network, if the model has one.
        """
        return self._build(self._kind, network, *self._refit([self._kind]))

    def finish_parts(self, network: tf_keras.Model | None) -> dict[Kind, tf_keras.Model]:
        """Train the parts other than the network on all rows; return the model and the models of its parts, by kind.

        The mean of the forest and the linear model is left out if the linear model has no weight in it.

        Args:
          network: The trained network, if the model has one.
        """
        kinds = [kind for kind, weights in self._weights.items() if kind != "gbt_linear" or weights.linear]
        trees, linear = self._refit(kinds)
        models = {kind: self._build(kind, network, trees, linear) for kind in kinds}
        return models if network is None else {**models, "tabm": network}

    def _refit(self, kinds: Sequence[Kind]) -> tuple[Trees, LinearWeights | None]:
        """Train the forest, and the linear model if it has a weight in one of the kinds, on all rows."""
        has_linear = any(self._weights[kind].linear for kind in kinds)
        linear = LinearLearner(self._learner).fit(self._all_rows, self._penalty) if has_linear else None
        return self._learner.refit(self._selected, self._all_rows, self._deadline), linear

    def _build(
        self, kind: Kind, network: tf_keras.Model | None, trees: Trees, linear: LinearWeights | None
    ) -> tf_keras.Model:
        weights = self._weights[kind]
        if weights == _ONLY_FOREST:
            return forest(trees, self._features)
        others: list[MatrixLayer] = [Forest(trees, name="forest")]
        others += [LinearTerms(linear, name="linear")] if linear and weights.linear else []
        return ensemble(network, self._head.join_members, others, weights[: 1 + len(others)], self._features)
