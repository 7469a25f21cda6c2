"""What the data gate depends on, as JSON in its parameters."""

from __future__ import annotations

from components.data_gate.config import ValidationConfig
from components.section import Section


class GatePlan(Section):
    """Everything from the config that decides what the gate lets through."""

    validation: ValidationConfig
    schema_path: str | None
    """The curated schema, for the remedies that name it."""
    label: str | None
    """The label, where it is a column of the data."""
    classes: bool
    """Whether the label has classes, so that a constant one cannot be learned."""
