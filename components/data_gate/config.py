"""The `schema` and `validation` sections: the expected data, and the gate's action if the data differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from components.base.config_section import Problem, Section


class SchemaConfig(Section):
    """The source of the schema."""

    path: str | None = None
    """A curated schema (text proto). Without one, the schema is inferred from this run's data."""
    infer_shapes: bool = False
    """For an inferred schema: whether a column with equally many values in every row gets a shape, as in stock TFX. A
    preprocessing_fn then receives it as a dense tensor, and the model refuses rows without it."""

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield shapes to infer for a curated schema."""
        if self.infer_shapes and self.path is not None:
            message = f"a curated schema has its own shapes, and schema.path is {self.path}; remove one of both"
            yield Problem(("schema", "infer_shapes"), message)


class ValidationConfig(Section):
    """What the data gate checks, and what it does with its findings."""

    action: Literal["stop", "warn"] = "stop"
    """stop: an anomaly ends the run before training. warn: it is written to the gate's log and report, and the run
    continues."""
    min_rows: int = Field(default=1, ge=1)
    """Smallest number of rows of each split."""
    near_duplicates: float | None = Field(default=None, ge=0, le=1)
    """Largest share of the images of a split that look like one of the training split; default: they are only
    reported."""
