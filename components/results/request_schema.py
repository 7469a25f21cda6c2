"""The schema of the rows in requests, a file in the model's folder that the model server uses to check requests.

The Trainer creates it from the schema and the statistics of the training data. It is pushed with the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from components.base.config_section import Section

FILE = "assets.extra/request_schema.json"
"""Path of the file in the folder of a SavedModel."""


class Column(Section):
    """A column that the model reads."""

    dtype: Literal["string", "int64", "float32"]
    required: bool = False
    """Whether rows without a value are refused. True if the schema requires a value and all ingested rows have one."""
    always_present: bool = False
    """Whether all rows of the training split have a value."""
    most_values: int | None = Field(default=1, ge=1)
    """Maximum number of values per row. If None, the number is not limited, as in histories."""
    least: float | None = None
    """Smallest value in the training split. None if it is unknown or the column is not numeric."""
    greatest: float | None = None
    """Largest value in the training split. None if it is unknown or the column is not numeric."""
    domain: tuple[str, ...] | None = None
    """Values of a string column that the schema lists. None if the schema does not list values."""


class RequestSchema(Section):
    """The columns of the rows in requests."""

    columns: dict[str, Column]
    """Columns that the model reads, by name."""
    other_columns: tuple[str, ...] = ()
    """Further columns of the training data, such as the label. A tf.Example may contain them, but they are ignored."""


def matrix_columns(columns: Mapping[str, Column]) -> dict[str, list[str]]:
    """Return the columns for the inputs of the signature `matrix`.

    Args:
      columns: The columns that the model reads, by name.

    Returns:
      Names of the columns with a single value per row, by dtype, in the original order. Every dtype is an input.
    """
    names: dict[str, list[str]] = {}
    for name, column in columns.items():
        if column.most_values == 1:
            names.setdefault(column.dtype, []).append(name)
    return names
