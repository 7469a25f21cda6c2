"""Partial dependence and interactions of a model's columns, as dataclasses and as the file `dependence.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from components.evaluator.importance import Value
from components.results.json_result import JsonResult

FILE = "dependence.json"
PointKind = Literal["value", "others", "missing"]


@dataclass(frozen=True)
class GridPoint:
    """A value, or a group of values, for which a column's partial dependence is measured.

    Attributes:
      value: The number or the text; None for the other kinds.
      share: Share of the rows with the text, with other texts, or without a value; None for a number.
      kind: `value`; `others` for all texts without a point; `missing` for rows without a value.
    """

    value: Value
    share: float | None = None
    kind: PointKind = "value"


@dataclass(frozen=True)
class Curve:
    """The predictions at the points of a column's grid.

    Attributes:
      output: Number of the class; None if the model has a single prediction.
      means: Mean prediction of the rows if all had the value of the point: the partial dependence.
      low: 10 % quantile of the rows' predictions at the point, after each row's predictions were moved so that their
        mean over the grid is the common one. Equal to the mean if the column has the same effect in all rows.
      high: 90 % quantile of the same.
    """

    output: int | None
    means: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class ColumnDependence:
    """The partial dependence of the prediction on a column.

    Attributes:
      column: Name of the column.
      numeric: Whether the values are numbers.
      points: The points; numbers in ascending order, texts by frequency, then the other kinds.
      curves: The prediction, or the classes with the highest mean probability.
    """

    column: str
    numeric: bool
    points: tuple[GridPoint, ...]
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Interaction:
    """How much the effect of a column depends on another column.

    Attributes:
      columns: The two columns.
      strength: Root of the mean squared part of the prediction that is not a sum of functions of the single columns,
        on `Dependence.scale`.
      h: Friedman's H: the same relative to the root mean square of the common effect of both columns; 0 without
        interaction. It is large for columns with small effects, too.
    """

    columns: tuple[str, str]
    strength: float
    h: float


@dataclass(frozen=True)
class HeatMap:
    """The partial dependence on two columns.

    Attributes:
      columns: Column of the rows, and column of the cells in a row.
      points: The points of both columns.
      output: See `Curve`.
      means: Mean prediction by point of the first, then of the second column.
    """

    columns: tuple[str, str]
    points: tuple[tuple[GridPoint, ...], tuple[GridPoint, ...]]
    output: int | None
    means: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Dependence(JsonResult):
    """The partial dependence of the prediction on the most important columns, and their interactions.

    Attributes:
      output: Name of the prediction: `probability` or `prediction`.
      rows: Number of rows over which the predictions are averaged.
      columns: The columns, the most important first.
      skipped: Important column → reason why it does not have a grid.
      scale: Scale on which interactions are measured.
      interaction_rows: Number of rows for the interactions.
      interactions: Pairs of the most important columns, the strongest first.
      heat_map: Partial dependence on the columns of the first pair; None without a pair.
      notes: What was left out or shortened, and why.
      unknown: Reason why nothing was measured; None if it was measured.
    """

    output: str = "prediction"
    rows: int = 0
    columns: tuple[ColumnDependence, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    scale: str = ""
    interaction_rows: int = 0
    interactions: tuple[Interaction, ...] = ()
    heat_map: HeatMap | None = None
    notes: tuple[str, ...] = ()
    unknown: str | None = None

    def find(self, column: str) -> ColumnDependence | None:
        """Return the partial dependence on a column; None if it was not measured."""
        return next((dependence for dependence in self.columns if dependence.column == column), None)
