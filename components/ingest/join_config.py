"""The `data.join` section of the config: side tables whose columns are added to the rows of the data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from components.base.config_section import Section, Texts
from components.base.files import is_remote
from components.data.date_texts import Unit
from components.ingest.durations import Duration
from components.ingest.text_config import CsvConfig


def _parse_pairs(value: Any) -> Any:
    """Convert a name, a list of names, or a mapping to column of the data → column of the side table."""
    pairs: dict[Any, Any] = {}
    for part in value if isinstance(value, (list, tuple)) else [value]:
        for name, side_name in part.items() if isinstance(part, Mapping) else [(part, part)]:
            if name in pairs:
                raise ValueError(f"expected different columns, received {name!r} twice")
            pairs[name] = side_name
    return pairs


Pairs = Annotated[
    dict[str, Annotated[str, Field(min_length=1)]],
    BeforeValidator(_parse_pairs, json_schema_input_type=str | tuple[str | dict[str, str], ...] | dict[str, str]),
]
"""Column of the data → column of the side table. A name stands for two columns of this name."""


class JoinConfig(Section):
    """A side table whose columns are added to the rows of the data. Every row stays exactly one row. A row without a
    match has missing values in the added columns, and a missing key does not match anything.
    """

    path: Annotated[Texts, Field(min_length=1)]
    """A file, a folder, a pattern, or a list of these, local or remote, with CSV or Parquet files."""
    format: Literal["csv", "parquet"] | None = None
    """Format of the files. By default it is inferred from the files."""
    csv: CsvConfig | None = None
    """Format of text files. By default `data.csv`, without its `formats`."""
    on: Pairs = Field(default_factory=dict)
    """Columns that must be equal: a column, a list of columns, or `{column of the data: column of the side table}`. A
    key may occur in one row of the side table only, unless `as_of` is given."""
    as_of: Pairs = Field(default_factory=dict)
    """Column of the time, or `{column of the data: column of the side table}`. Among the rows with an equal key, the
    newest row at or before the time of the data's row is joined; of several rows with this time, the last one."""
    within: Duration | None = None
    """For `as_of`: maximum age of the joined row, as seconds or 90m, 12h, 7d, 2w. By default it is not limited."""
    unit: Unit = "seconds"
    """For `as_of`: unit of times that are numbers since 1970."""
    columns: Texts = ()
    """Columns of the side table to add. By default all except the columns of `on` and `as_of`."""
    prefix: str = Field(default="", pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")
    """Text before the names of the added columns, such as `zone_`."""

    @model_validator(mode="after")
    def _check_keys(self) -> JoinConfig:
        if not self.on and not self.as_of:
            raise ValueError("expected on, the columns of the key, or as_of, the column of the time, received neither")
        if len(self.as_of) > 1:
            raise ValueError(f"as_of: expected one column, received {', '.join(self.as_of)}")
        for field, is_set in (("within", self.within is not None), ("unit", self.unit != "seconds")):
            if is_set and not self.as_of:
                raise ValueError(f"{field} needs as_of, the column of the time; remove {field}")
        if shared := [name for name in self.columns if name in self.keys]:
            raise ValueError(f"columns: expected columns other than on and as_of, received {shared[0]!r}; remove it")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the side table that select its rows."""
        return tuple(dict.fromkeys((*self.on.values(), *self.as_of.values())))

    @property
    def data_keys(self) -> tuple[str, ...]:
        """The columns of the data that select rows of the side table."""
        return tuple(dict.fromkeys((*self.on, *self.as_of)))

    def with_absolute_path(self) -> JoinConfig:
        """Return the section with absolute paths, because a worker may run in another folder."""
        paths = tuple(path if is_remote(path) else str(Path(path).absolute()) for path in self.path)
        return self.model_copy(update={"path": paths})
