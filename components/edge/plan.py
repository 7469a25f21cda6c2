"""What EdgeExporter depends on beside the model and the rows: its cache key."""

from __future__ import annotations

from components.config_section import Section
from components.edge.config import EdgeConfig
from components.features.plan import FeaturePlan


class EdgePlan(Section):
    """The variants, and the operations that precede the model."""

    variants: EdgeConfig
    features: FeaturePlan
    code: str = ""
    """Digest of the code of the node."""
