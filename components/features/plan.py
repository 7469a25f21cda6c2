"""The features' part of the cache keys of Transform and Trainer: settings passed as JSON in their parameters."""

from __future__ import annotations

from components.config_section import Section, Task
from components.features import expression
from components.features.config import FeaturesConfig
from components.features.expression import Expression


class FeaturePlan(Section):
    """The features, the label and the task of a pipeline."""

    features: FeaturesConfig
    label: str
    task: Task

    def label_expression(self) -> Expression:
        """Parses the label."""
        return expression.parse(self.label)
