"""Draws how the prediction depends on columns: curves, bars of texts, and a table of shades for two columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.evaluator.dependence import ColumnDependence, Dependence, HeatMap
from components.evaluator.importance import Importance
from pipeline.inspection.dependence_tables import format_output, format_point, list_selected, summarize_selection
from pipeline.inspection.report import svg
from pipeline.inspection.report.svg import format_figure

_SHADES = 5
"""Number of shades that style.css defines for the cells of a table."""
_COLUMNS = 30
"""Maximum number of columns in a table."""


def prepare_selection(importance: Importance) -> dict[str, Any] | None:
    """Return the table of columns that could be dropped; None if no column's importance is inside the noise."""
    selected = list_selected(importance)
    if not selected:
        return None
    return {
        "columns": selected[:_COLUMNS],
        "columns_left": max(0, len(selected) - _COLUMNS),
        "summary": summarize_selection(importance),
    }


def prepare_dependence(dependence: Dependence, classes: Sequence[str]) -> dict[str, Any]:
    """Return the charts of the columns, the table of interactions, and the heat map of the strongest pair.

    Args:
      dependence: The partial dependence.
      classes: Names of the classes, by number. Empty if they are unknown.
    """
    return {
        "output": dependence.output,
        "rows": dependence.rows,
        "charts": [_prepare_column(dependence.output, column, classes) for column in dependence.columns],
        "skipped": dependence.skipped,
        "notes": dependence.notes,
        "scale": dependence.scale,
        "interaction_rows": dependence.interaction_rows,
        "interactions": dependence.interactions,
        "heat_map": _prepare_heat_map(dependence.output, dependence.heat_map, classes) if dependence.heat_map else None,
    }


def _prepare_column(output: str, column: ColumnDependence, classes: Sequence[str]) -> dict[str, Any]:
    names = [format_output(output, curve.output, classes) for curve in column.curves]
    first = column.curves[0]
    title = f"{names[0] if len(names) == 1 or not column.numeric else output} by {column.column}"
    if not column.numeric:
        points = zip(column.points, first.means, zip(first.low, first.high, strict=True), strict=True)
        bars = [(format_point(point), mean, interval) for point, mean, interval in points]
        return {"name": title, "chart": svg.draw_ranges(bars, title), "key": [], "facts": []}
    places = [at for at, point in enumerate(column.points) if point.kind == "value"]
    numbers = [float(column.points[at].value or 0) for at in places]
    lines = {
        name: [(x, curve.means[at]) for x, at in zip(numbers, places, strict=True)]
        for name, curve in zip(names, column.curves, strict=True)
    }
    band = (
        [(x, first.low[at], first.high[at]) for x, at in zip(numbers, places, strict=True)] if len(names) == 1 else []
    )
    return {
        "name": title,
        "chart": svg.draw_lines(lines, title, column.column, band=band),
        "key": names if len(names) > 1 else [],
        "facts": [
            f"{format_point(point)}: {', '.join(format_figure(curve.means[at]) for curve in column.curves)}"
            for at, point in enumerate(column.points)
            if point.kind != "value"
        ],
    }


def _prepare_heat_map(output: str, heat_map: HeatMap, classes: Sequence[str]) -> dict[str, Any]:
    least = min(min(row) for row in heat_map.means)
    most = max(max(row) for row in heat_map.means)

    def shade(mean: float) -> int:
        return 1 + min(int((mean - least) / (most - least or 1.0) * _SHADES), _SHADES - 1)

    names = [[format_point(point) for point in points] for points in heat_map.points]
    return {
        "columns": heat_map.columns,
        "output": format_output(output, heat_map.output, classes),
        "heads": names[1],
        "rows": [
            (name, [(mean, shade(mean)) for mean in row]) for name, row in zip(names[0], heat_map.means, strict=True)
        ],
    }
