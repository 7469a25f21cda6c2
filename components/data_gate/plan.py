"""The cache key of the data gate, which contains all settings that its result depends on."""

from __future__ import annotations

from components.base.config_section import Section
from components.data_gate.config import ValidationConfig


class GatePlan(Section):
    """The settings of the data gate, which are passed to the component as JSON."""

    validation: ValidationConfig
    schema_path: str | None
    """Path of the curated schema, which the remedies mention. None if the schema is inferred."""
    labels: tuple[str, ...]
    """Columns that are labels. Labels that are expressions are left out."""
    classes: bool
    """Whether the labels have classes. If they do, a constant label is a finding."""
