"""The data gate's cache key: everything from the config that its result depends on."""

from __future__ import annotations

from components.base.config_section import Section
from components.data_gate.config import ValidationConfig


class GatePlan(Section):
    """The gate's settings, passed as JSON in its parameters."""

    validation: ValidationConfig
    schema_path: str | None
    """The curated schema, which remedies name."""
    labels: tuple[str, ...]
    """The columns of labels; without labels that are expressions."""
    classes: bool
    """Whether labels have classes: then a constant label is a finding."""
