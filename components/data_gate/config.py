"""The `schema` and `validation` sections: what the data has to look like, and what happens when it does not."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from components.section import Section


class SchemaConfig(Section):
    """Where the schema comes from."""

    path: str | None = None
    """A curated schema (text proto). Without one, the schema is inferred from this run's data."""


class ValidationConfig(Section):
    """What the data gate does with what it finds."""

    action: Literal["stop", "warn"] = "stop"
    """stop: an anomaly ends the run before anything is trained; warn: it stands in the gate's log and report, and the
    run goes on."""
    min_rows: int = Field(default=1, ge=1)
    """Rows that each split has to have at least."""
