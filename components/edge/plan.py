"""What EdgeExporter depends on beside the model and the rows: its cache key."""

from __future__ import annotations

from components.config_section import Section
from components.edge.config import EdgeConfig
from components.features.plan import FeaturePlan
from components.trainer.plan import TrainingPlan


class EdgePlan(Section):
    """The variants, and the operations that precede the model."""

    variants: EdgeConfig
    features: FeaturePlan
    training: TrainingPlan | None = None
    """How the model was trained, if a variant is trained further; else None."""
    pushed: str = ""
    """The push folder, if a variant has a pushed version as its teacher."""
    code: str = ""
    """Digest of the code of the node."""
