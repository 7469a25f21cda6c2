"""What the Trainer depends on, as JSON in its parameters: features, model and training, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.section import Section
from components.trainer.config import TrainingConfig


class TrainingPlan(Section):
    """Everything from the config that decides what is trained."""

    features: FeaturePlan
    model: ModelConfig
    training: TrainingConfig

    def with_values(self, values: Mapping[str, Any]) -> TrainingPlan:
        """The same plan with a Tuner's values in their places.

        Args:
          values: field of the model or of the training section → its value; `hidden` may be JSON, since KerasTuner
            knows no lists.

        Raises:
          ValidationError: a value is none for its field, or there is no such field.
        """
        given = dict(values)
        if isinstance(given.get("hidden"), str):
            given["hidden"] = json.loads(given["hidden"])
        training = {name: value for name, value in given.items() if name in TrainingConfig.model_fields}
        model = {name: value for name, value in given.items() if name not in training}
        return TrainingPlan(
            features=self.features,
            model=ModelConfig.model_validate({**self.model.model_dump(), **model}),
            training=TrainingConfig.model_validate({**self.training.model_dump(), **training}),
        )
