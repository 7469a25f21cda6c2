"""What the Trainer depends on, as JSON in its parameters: features, model and training, and nothing else."""

from __future__ import annotations

from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.section import Section
from components.trainer.config import TrainingConfig


class TrainingPlan(Section):
    """Everything from the config that decides what is trained."""

    features: FeaturePlan
    model: ModelConfig
    training: TrainingConfig
