"""Renders the HTML page with the list of runs: a table, charts of metrics over time, and links to the reports."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from pipeline.core.run_record import is_folder_name
from pipeline.core.text import format_time
from pipeline.inspection.report import svg
from pipeline.inspection.report.run_page import environment
from pipeline.inspection.report.write import NAME
from pipeline.inspection.run_history import RunListEntry

MOST = 2000
"""Maximum number of runs on the page. The newest runs are shown."""
_METRICS = 24
"""Maximum number of charts."""
_PIPELINES = 5
"""Maximum number of lines in a chart."""
_METRIC_COLUMNS = 4
"""Maximum number of metrics in the table."""


def render(runs: Iterable[RunListEntry], link: Callable[[str], Markup | None], tag: str = "", note: str = "") -> str:
    """Return the list of runs as HTML.

    Args:
      runs: The runs, the newest first.
      link: Function from the ID of a run to the link to its report. It returns None for a run without a report.
      tag: Entity tag of the page's version, for a live page that requests newer versions. Empty for a file.
      note: Problem to show above the list, for example that the store cannot be opened.
    """
    entries = list(runs)
    listed = entries[:MOST]
    counts = Counter(name for run in listed for name, value in run.metrics.items() if math.isfinite(value))
    metrics = list(counts)
    repeated = [name for name in metrics if counts[name] > 1]
    return (
        environment()
        .get_template("site.html")
        .render(
            runs=[{"entry": run, "link": link(run.run)} for run in listed],
            runs_left=len(entries) > len(listed),
            most=MOST,
            pipelines=list(dict.fromkeys(run.pipeline for run in listed)),
            metrics=metrics[:_METRIC_COLUMNS],
            trends=[_prepare_trend(name, listed) for name in repeated[:_METRICS]],
            trends_left=max(0, len(repeated) - _METRICS),
            tag=tag,
            note=note,
        )
    )


def file_links(logs: Path, folder: Path) -> Callable[[str], Markup | None]:
    """Return a function that links to the report file of a run, for `render`.

    Args:
      logs: Folder with one subfolder per run, which contains the report if it was written.
      folder: Folder of the page. The links are relative to it.
    """

    def link(run: str) -> Markup | None:
        file = logs / run / NAME
        if not is_folder_name(run) or not file.exists():
            return None
        return relative_url(*Path(os.path.relpath(file.absolute(), folder.absolute())).parts)

    return link


def relative_url(*parts: str) -> Markup:
    """Return a relative URL. The parts are quoted separately, so that a slash in a name does not change the path."""
    quoted = "/".join(quote(os.fsencode(part), safe="") for part in parts)
    return Markup(quoted)  # noqa: S704 - after quoting for a URL, no character needs escaping


def _prepare_trend(name: str, runs: list[RunListEntry]) -> dict[str, Any]:
    series: dict[str, list[tuple[float, float]]] = {}
    for run in reversed(runs):
        if math.isfinite(run.metrics.get(name, math.nan)):
            series.setdefault(run.pipeline, []).append((run.started, run.metrics[name]))
    lines = {pipeline: sorted(points) for pipeline, points in list(series.items())[:_PIPELINES]}
    return {
        "name": name,
        "chart": svg.draw_lines(lines, f"{name} by run", "time", _format_day),
        "kinds": [(pipeline, points[-1][1]) for pipeline, points in lines.items()],
        "left": len(series) - len(lines),
    }


def _format_day(seconds: float) -> str:
    return format_time(seconds)[:10]
