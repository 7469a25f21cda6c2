"""What a model expects of the rows in requests: a file in the model's folder, by which the server checks them.

The Trainer writes it from the schema and from the statistics of the training data; it travels with the pushed model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from components.base.config_section import Section

FILE = "assets.extra/request_schema.json"
"""Path in the folder of a SavedModel."""


class Column(Section):
    """A column that the model reads."""

    dtype: Literal["string", "int64", "float32"]
    required: bool = False
    """Whether a row without a value is refused: the schema requires a value, and no row that was ingested lacks it."""
    always_present: bool = False
    """Whether no row of the training split lacks a value."""
    most_values: int | None = Field(default=1, ge=1)
    """The greatest number of values of a row. None: any number, as in histories."""
    least: float | None = None
    """The least value in the training split; None: not known, or not a number."""
    greatest: float | None = None
    """The greatest value in the training split; None: not known, or not a number."""
    domain: tuple[str, ...] | None = None
    """The values that the schema lists for a string; None: it lists none."""


class RequestSchema(Section):
    """The columns of the rows in requests."""

    columns: dict[str, Column]
    """The columns that the model reads, by name."""
    other_columns: tuple[str, ...] = ()
    """Further columns of the training data, such as the label. A tf.Example may have them; the model ignores them."""


def matrix_columns(columns: Mapping[str, Column]) -> dict[str, list[str]]:
    """Return dtype → its columns with one value in a row, in their order: the columns of each input of `matrix`."""
    names: dict[str, list[str]] = {}
    for name, column in columns.items():
        if column.most_values == 1:
            names.setdefault(column.dtype, []).append(name)
    return names
