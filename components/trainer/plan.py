"""Everything the Trainer depends on, as JSON in its parameters: features, model and training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from components.base.config_section import Section
from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.results.decision_goal import Decide
from components.trainer.config import TrainingConfig


class ExcludeSeen(Section):
    """The column with the user's ID, for which a retrieval leaves out the items of the training split."""

    columns: tuple[str, ...]
    """The columns that may contain the user's ID; each has the operation `vocab`."""
    required: bool
    """Whether the config requires it; otherwise items are left out if they do not repeat for a value of the column."""


class TrainingPlan(Section):
    """The part of the config that determines the trained model."""

    features: FeaturePlan
    model: ModelConfig
    training: TrainingConfig
    exclude_seen: ExcludeSeen | None = None
    """For the task retrieval; if None, all items are returned."""
    decide: Decide | None = None
    """For the task binary; if None, the model returns probabilities only."""

    @property
    def holds_out(self) -> bool:
        """Whether rows of the training split are held out: the training needs them, or the choice of a threshold."""
        training = self.training
        decides = self.decide is not None and self.decide.needs_rows
        return bool(training.early_stopping or training.folds or self.model.holds_out or decides)

    def with_values(self, values: Mapping[str, Any]) -> TrainingPlan:
        """Return the same plan with a Tuner's values; see `ModelConfig.with_values`.

        Args:
          values: Field of the model or of the training section → its value; `hidden` may be JSON, because KerasTuner
            does not support lists.

        Raises:
          ValidationError: If a value is not valid for its field, or the field does not exist.
        """
        fields = dict(values)
        if isinstance(fields.get("hidden"), str):
            fields["hidden"] = json.loads(fields["hidden"])
        training = {name: value for name, value in fields.items() if name in TrainingConfig.model_fields}
        model = {name: value for name, value in fields.items() if name not in training}
        return TrainingPlan(
            features=self.features,
            model=self.model.with_values(model),
            training=TrainingConfig.model_validate({**self.training.model_dump(), **training}),
            exclude_seen=self.exclude_seen,
            decide=self.decide,
        )
