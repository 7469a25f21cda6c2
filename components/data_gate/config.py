"""The `schema` and `validation` sections: the expected data, and the gate's action if the data differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from components.base.config_section import Problem, Section


class SchemaConfig(Section):
    """The source of the schema."""

    path: str | None = None
    """Path of a curated schema, a text proto. By default, the schema is inferred from the data of the run."""
    infer_shapes: bool = False
    """For an inferred schema: whether a column with equally many values in every row gets a shape, as in stock TFX. A
    preprocessing_fn then receives it as a dense tensor, and the model refuses rows without it."""

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield a problem if `infer_shapes` is set although the schema is curated."""
        if self.infer_shapes and self.path is not None:
            message = f"a curated schema has its own shapes, and schema.path is {self.path}; remove one of both"
            yield Problem(("schema", "infer_shapes"), message)


class ValidationConfig(Section):
    """What the data gate checks, and what it does with its findings."""

    action: Literal["stop", "warn"] = "stop"
    """Reaction to an anomaly. stop: the run ends before training; warn: the anomaly is written to the log and the
    report of the gate, and the run continues."""
    min_rows: int = Field(default=1, ge=1)
    """Minimum number of rows in a split."""
    near_duplicates: float | None = Field(default=None, ge=0, le=1)
    """Maximum share of the images in a split that look like an image of the training split. By default, such images are
    only reported."""
