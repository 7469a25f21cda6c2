"""Recognises tables that are ordered by time: a row per moment, or per pair of a thing and a moment (a panel)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.data.date_texts import parse_date
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.sample import Table, kind

_LEAST_MOMENTS = 30
"""Minimum number of moments, so that every split gets some."""
_FULL = 0.5
"""Minimum share of the possible pairs of a thing and a moment that have a row. Events, such as orders, fill few pairs.
"""
_REGULAR = 0.9
"""Minimum share of equal distances in a series."""
_REPEATED = 0.001
"""Maximum share of rows whose thing and moment another row has."""


@dataclass(frozen=True)
class Panel:
    """A table with a row per moment, or per thing and moment.

    Attributes:
      time: Column with the moments.
      unit: Unit of moments that are numbers; None for texts.
      thing: Column with the things; None if every moment has one row.
    """

    time: str
    unit: str | None
    thing: str | None

    @property
    def split(self) -> dict[str, Any]:
        """The split by time, without the shares."""
        unit = {"unit": self.unit} if self.unit not in (None, "seconds") else {}
        return {"by": "time", "columns": [self.time], **unit}

    @property
    def why(self) -> str:
        """The reason for the split."""
        rows = f"each {self.thing} has a row per {self.time}" if self.thing else f"each {self.time} has one row"
        return f"{rows}: the newest rows judge the model, because it predicts later ones; data.windows adds their past"


def find_panel(table: Table, task: LearningTask, columns: Mapping[str, FeatureChoice | ExcludedColumn]) -> Panel | None:
    """Find the times that order a table.

    In a random split, a model would know the rows before and after each row that judges it.

    Args:
      table: Sample of the data.
      task: Label and learning task.
      columns: Column name → its features, or the reason why it is excluded.

    Returns:
      The columns of the panel; None for other tables, and if a time is not ISO 8601, because a split cannot sort it.
    """
    for time, unit in _find_times(columns):
        moments = _encode(table.columns[time])
        count = int(moments.max(initial=-1)) + 1
        if time in task.columns or (moments < 0).any() or count < _LEAST_MOMENTS:
            continue
        distinct = _read_times(table.columns[time])
        if distinct is None:
            continue
        if count >= (1 - _REPEATED) * len(moments) and _is_regular(distinct):
            return Panel(time, unit, None)
        for name, column in table.columns.items():
            if name not in (time, *task.columns) and kind(column) in ("int", "bytes"):
                things = _encode(column)
                if _fill_pairs(things, moments, table.sampled / table.rows):
                    return Panel(time, unit, name)
    return None


def _find_times(columns: Mapping[str, FeatureChoice | ExcludedColumn]) -> Iterator[tuple[str, str | None]]:
    """Yield the columns of dates that are numbers, with their unit, or ISO 8601, with None."""
    for name, column in columns.items():
        for op in column.ops if isinstance(column, FeatureChoice) else ():
            if isinstance(op, dict) and "date_parts" in op and "order" not in op["date_parts"]:
                yield name, op["date_parts"].get("unit")


def _encode(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return an index per distinct value, int64 [rows]; -1 where the value is missing."""
    indices = column.dictionary_encode().indices
    return np.asarray(pc.fill_null(indices, -1)).astype(np.int64)


def _fill_pairs(things: npt.NDArray[np.int64], moments: npt.NDArray[np.int64], sampled: float) -> bool:
    """Check whether most pairs of a thing and a moment have one row.

    Args:
      things: Code of the thing in each row, int64 [rows].
      moments: Code of the moment in each row, int64 [rows].
      sampled: Share of the table's rows that these are.
    """
    count, rows = int(things.max(initial=-1)) + 1, len(things)
    pairs = count * (int(moments.max()) + 1)
    if count < 2 or (things < 0).any() or not _FULL * pairs * sampled <= rows <= pairs:
        return False
    return len(np.unique(things * (int(moments.max()) + 1) + moments)) >= (1 - _REPEATED) * rows


def _read_times(column: pa.Array) -> npt.NDArray[np.float64] | None:
    """Return the distinct times, ascending; None if a text is not a time."""
    distinct = column.unique()
    if pa.types.is_integer(column.type):
        return np.sort(np.asarray(distinct, np.float64))
    times = [parse_date(text.decode(errors="replace"), "ymd") for text in distinct.to_pylist()]
    return None if None in times else np.sort([time.timestamp() for time in times if time])


def _is_regular(times: npt.NDArray[np.float64]) -> bool:
    """Check whether most times have the same distance from the next time, as days and hours have, and months nearly."""
    distances = np.diff(times)
    return float(np.isclose(distances, np.median(distances), rtol=0.15, atol=0).mean()) >= _REGULAR
