"""The training of a model's forest: its shape and its weight beside a network by the validation part, then all rows."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np
import scipy.optimize
import tf_keras

from components.features import feature_names
from components.features.compact import CompactFeatures
from components.models.config import Kind
from components.models.forest import Floats, ensemble, forest, tree_inputs
from components.models.inputs import Inputs
from components.trainer import input_pipeline
from components.trainer.forest_learner import ForestLearner, read
from components.trainer.input_columns import FeatureSpec
from components.trainer.plan import TrainingPlan
from components.trainer.prediction_head import PredictionHead
from components.trainer.validation_part import Selection, ValidationPart

_BATCH, _BATCH_BYTES = 65_536, 64 << 20
"""The greatest number of rows that are read at once, and the greatest size of their expanded features."""


class ForestTraining:
    """The training of a model's forest, and its weight beside a network.

    Args:
      plan: model and training.
      head: the task's loss and outputs.
      features: all features.
      files: the training split, see `input_pipeline.find`.
      spec: parsing spec of the transformed features and the label.
      compact: the features that are stored in a compact form.

    Attributes:
      loss: the loss on the validation part, or that of all rows with folds; after `select`.
      validation_logits: the logits of these rows, float32 [rows, outputs]; after `select`.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        head: PredictionHead,
        features: Inputs,
        files: Sequence[str],
        spec: FeatureSpec,
        compact: CompactFeatures,
    ) -> None:
        inputs = tree_inputs(plan.features, features)
        self._learner = ForestLearner(plan.model, head, inputs, plan.training.seed)
        self._head, self._features, self._files, self._compact = head, features, files, compact
        of_row = [name for name in (feature_names.LABEL, feature_names.WEIGHT) if name in spec]
        self._spec = {name: spec[name] for name in (*(each.feature for each in inputs), *of_row)}
        self._share, self.loss = 0.0, math.inf

    def select(self, part: ValidationPart, network: Floats | None) -> None:
        """Decides the size of the forest, and its weight beside a network, by the loss on the validation part.

        Args:
          part: the validation part.
          network: the network's logits of its rows, [rows, outputs]; None if there is no network.

        Raises:
          InputError: the rows do not fit into memory.
        """
        size = max(1, min(_BATCH, _BATCH_BYTES // max(1, self._compact.only(self._spec).row_bytes)))
        batches = input_pipeline.evaluation_batches(self._files, self._spec, size, Selection(part, inside=None))
        rows = read((self._compact.expand(features), *rest) for features, *rest in batches)
        folds = rows.features.pop(feature_names.FOLD)
        logging.info("training trees on %d rows", np.sum(folds != 0) if part.folds == 1 else len(folds))
        self._rows, validation = rows, rows.where(folds >= 0)
        self._selected = self._learner.select(
            rows, [mask for number in range(part.folds) if (mask := folds == number).any()]
        )
        self.loss, self.validation_logits = self._selected.loss, self._selected.logits
        if network is None:
            return

        def logits_of(share: float) -> Floats:
            mean: Floats = share * network + (1 - share) * self._selected.logits
            return mean

        def loss_of(share: float) -> float:
            return self._learner.loss(validation, logits_of(share))

        found = scipy.optimize.minimize_scalar(loss_of, bounds=(0, 1), method="bounded")
        self._share, self.loss = float(found.x), float(found.fun)
        self.validation_logits = logits_of(self._share)
        logging.info(
            "loss on the validation part: network %.5f, forest %.5f, %.2f of the network and %.2f of the forest %.5f",
            *(loss_of(1), loss_of(0), self._share, 1 - self._share, self.loss),
        )

    def finish(self, network: tf_keras.Model | None) -> tf_keras.Model:
        """Trains the forest on all rows; returns the model to export, from transformed features to logits.

        Args:
          network: the trained one, if there is one.
        """
        return self.finish_parts(network)["gbt" if network is None else "ensemble"]

    def finish_parts(self, network: tf_keras.Model | None) -> dict[Kind, tf_keras.Model]:
        """Trains the forest on all rows; returns the models from transformed features to logits, by kind.

        Args:
          network: the trained one, if there is one; then its mean with the forest is a model as well.
        """
        trees = self._learner.refit(self._selected, self._rows)
        parts: dict[Kind, tf_keras.Model] = {"gbt": forest(trees, self._features)}
        if network is not None:
            joint = ensemble(network, self._head.joined, self._share, trees, self._features)
            parts |= {"tabm": network, "ensemble": joint}
        return parts
