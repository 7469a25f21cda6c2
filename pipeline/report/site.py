"""One page on all runs: a table, the metrics over time, and links to the reports that are there."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from pipeline.metadata.history import Row, is_folder_name
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


def rendered(rows: Iterable[Row], link: Callable[[str], Markup | None], tag: str = "", note: str = "") -> str:
    """The page.

    Args:
      rows: the runs, newest first.
      link: of a run by its id, to its report; None where there is none.
      tag: of the page's version, if it is to ask for newer ones of itself.
      note: what is not well with the list.
    """
    told = list(rows)
    shown = told[:MOST]
    metrics = list(dict.fromkeys(name for row in shown for name, value in row.metrics.items() if math.isfinite(value)))
    return (
        environment()
        .get_template("site.html")
        .render(
            runs=[{"row": row, "link": link(row.run)} for row in shown],
            runs_left=len(told) > len(shown),
            most=MOST,
            pipelines=list(dict.fromkeys(row.pipeline for row in shown)),
            metrics=metrics[:_SHOWN],
            trends=[_trend(name, shown) for name in metrics[:_METRICS]],
            trends_left=max(0, len(metrics) - _METRICS),
            tag=tag,
            note=note,
        )
    )


def to_files(logs: Path, folder: Path) -> Callable[[str], Markup | None]:
    """Links to the reports that are there.

    Args:
      logs: the folder with a folder per run.
      folder: in which the page will lie.
    """

    def link(run: str) -> Markup | None:
        file = logs / run / NAME
        if not is_folder_name(run) or not file.exists():
            return None
        return way(*Path(os.path.relpath(file.absolute(), folder.absolute())).parts)

    return link


def way(*parts: str) -> Markup:
    """A way from a page, as a link has it; no name leads elsewhere than to itself."""
    quoted = "/".join(quote(os.fsencode(part), safe="") for part in parts)
    return Markup(quoted)  # noqa: S704 - quoted for a URL, so there is no sign left to escape


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
