"""One page on all runs: a table, the metrics over time, and links to the reports that are there."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from pipeline.metadata.history import Row
from pipeline.metadata.words import clock
from pipeline.report import charts
from pipeline.report.page import environment
from pipeline.report.write import NAME

MOST = 2000
"""Runs on the page, the newest; more make no page that anybody reads."""
_METRICS = 24
_PIPELINES = 5
"""Lines in a chart."""
_SHOWN = 4
"""Metrics of a run in the table."""


def rendered(rows: Iterable[Row], logs: Path, folder: Path) -> str:
    """The page.

    Args:
      rows: the runs, newest first.
      logs: the folder with a folder per run.
      folder: in which the page will lie.
    """
    told = list(rows)
    shown = told[:MOST]
    metrics = list(dict.fromkeys(name for row in shown for name, value in row.metrics.items() if math.isfinite(value)))
    return (
        environment()
        .get_template("site.html")
        .render(
            runs=[{"row": row, "link": _link(logs, folder, row.run)} for row in shown],
            runs_left=len(told) > len(shown),
            most=MOST,
            pipelines=list(dict.fromkeys(row.pipeline for row in shown)),
            metrics=metrics[:_SHOWN],
            trends=[_trend(name, shown) for name in metrics[:_METRICS]],
            trends_left=max(0, len(metrics) - _METRICS),
        )
    )


def _trend(name: str, rows: list[Row]) -> dict[str, Any]:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in reversed(rows):
        if math.isfinite(row.metrics.get(name, math.nan)):
            series.setdefault(row.pipeline, []).append((row.started, row.metrics[name]))
    some = {pipeline: sorted(points) for pipeline, points in list(series.items())[:_PIPELINES]}
    return {
        "name": name,
        "chart": charts.lines(some, f"{name} by run", "time", _day),
        "kinds": [(pipeline, points[-1][1]) for pipeline, points in some.items()],
        "left": len(series) - len(some),
    }


def _day(seconds: float) -> str:
    return clock(seconds)[:10]


def _link(logs: Path, folder: Path, run: str) -> Markup | None:
    """The way from the page to a report."""
    file = logs / run / NAME
    if Path(run).name != run or not file.exists():
        return None
    path = os.path.relpath(file.absolute(), folder.absolute())
    return Markup(quote(os.fsencode(path)))  # noqa: S704 - quoted for a URL, so there is no sign left to escape
