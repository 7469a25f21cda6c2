"""What Transform and Trainer have to know of the features: the settings they share, as JSON in their parameters."""

from __future__ import annotations

from components.features import expression
from components.features.config import FeaturesConfig
from components.features.expression import Expression
from components.section import Section, Task


class FeaturePlan(Section):
    """The features and the label of a pipeline."""

    features: FeaturesConfig
    label: str
    task: Task

    def label_expression(self) -> Expression:
        """The label, parsed."""
        return expression.parse(self.label)
