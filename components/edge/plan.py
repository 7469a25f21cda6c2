"""The plan of EdgeExporter: the settings in its cache key, which also contains the model and the examples."""

from __future__ import annotations

from components.base.config_section import Section
from components.edge.config import EdgeConfig
from components.features.plan import FeaturePlan
from components.trainer.plan import TrainingPlan


class EdgePlan(Section):
    """The variants, and the operations that precede the model."""

    variants: EdgeConfig
    features: FeaturePlan
    training: TrainingPlan | None = None
    """How the model was trained. None if variants are only converted, not trained further."""
    pushed: str = ""
    """The push folder. Empty if the teachers of all variants are the model of the run."""
    code: str = ""
    """Digest of the node's code, so that the node runs again when its code changes."""
