"""Renders the report of a run as one self-contained HTML page.

The page does not load other files. If it is written to a file, it does not contain a script either.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from components.base.node import ReportSection, ResultTable
from components.evaluator.importance import Importance
from components.evaluator.mistakes import Mistake
from components.results.version_manifest import MODEL_SIGNATURE
from components.tuner import trial_values
from pipeline.core.nodes import NODES_WITH_RESULT
from pipeline.core.records import RunSummary
from pipeline.core.text import format_duration, format_time_with_zone, plain
from pipeline.inspection import lineage, run_history
from pipeline.inspection.column_statistics import Column
from pipeline.inspection.evaluation_tables import (
    format_slice_name,
    list_decisions,
    make_check_rows,
    make_metric_rows,
    select_reference_values,
    split_metric_names,
)
from pipeline.inspection.report import answer, dependence_charts, evaluation_charts, node_graph, svg

if TYPE_CHECKING:
    from rich.tree import Tree

    from pipeline.inspection.report.content import Content

# Limits that bound the size of a page. The page shows how many items are left out.
_NODES = 500
_ROWS = 30
_COLUMNS = 100
_SPLITS = 4
_SLICES = 100
_SLICES_OF_IMPORTANCE = 8
_CHECKS = 200
_METRICS = 12
_WARNINGS = 8
_ANOMALIES = 100
_FEATURES = 500
_CURVES = 24
_TASKS = 100
_LINES = 6
_BRANCHES = 400
_CONFIG_LINES = 3000
_TOP = 5
_TEMPLATES = Path(__file__).parent / "templates"
_STYLE = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
_SCRIPT = (_TEMPLATES / "live.js").read_text(encoding="utf-8")
_ABOVE = "(above)"
"""Label of a branch of the lineage that was already drawn above."""


def render(content: Content, folder: Path, tag: str = "") -> str:
    """Return the report as HTML.

    Args:
      content: Content of the report.
      folder: Folder of the page. Logs in this folder are linked.
      tag: Entity tag of the page's version, for a live page that requests newer versions. Empty for a file.
    """
    summary, charts = content.summary, draw_charts(content)
    return (
        environment()
        .get_template("report.html")
        .render(
            run=content.run,
            summary=summary,
            missing=content.missing,
            forced=_describe_forced_blessing(summary),
            answer=answer.make_answer(content),
            warnings_shown=_WARNINGS,
            rows=_list_rows(summary)[:_ROWS],
            **_prepare_pipeline(content.run, content.upstream, folder),
            data=_prepare_data(content),
            anomalies=content.anomalies[:_ANOMALIES],
            anomalies_left=max(0, len(content.anomalies) - _ANOMALIES),
            judged=content.judged,
            features=content.features[:_FEATURES],
            features_left=max(0, len(content.features) - _FEATURES),
            vocabularies=dict(list(content.vocabularies.items())[:_FEATURES]),
            training=_prepare_training(content),
            evaluation=_prepare_evaluation(content, charts),
            result_tables=_list_result_tables(summary),
            manifest=content.manifest,
            is_signed=summary.pushed is not None and Path(summary.pushed, MODEL_SIGNATURE).exists(),
            sections=_list_sections(summary),
            lineage=_prepare_lineage(content),
            environment=content.environment,
            config=_prepare_config(content.config),
            columns_changed=_list_changed_columns(content),
            tag=tag,
        )
    )


def render_section(section: ReportSection, pipeline: str) -> str:
    """Return a page with a single section of the report, for a result that was computed outside a run.

    Args:
      section: The section.
      pipeline: Name of the pipeline.
    """
    _, title, html = _fill_template(section)
    return environment().get_template("section_page.html").render(title=title, html=html, pipeline=pipeline, tag="")


def render_progress(run: Mapping[str, Any], folder: Path, tag: str) -> str:
    """Return the page of a run that is active or is not in the store. It shows the nodes with their time and memory.

    Args:
      run: Description of the run from `run_history.describe_record` or `run_history.describe_run`.
      folder: Folder with the run's logs.
      tag: Entity tag of the page's version.
    """
    nodes = run["nodes"]
    return (
        environment()
        .get_template("progress.html")
        .render(
            run=run,
            count=len(nodes),
            ended=sum(node["state"] not in ("waiting", "running") for node in nodes.values()),
            now=[name for name, node in nodes.items() if run["state"] == node["state"] == "running"],
            cpu_seconds=sum(node["cpu_seconds"] or 0.0 for node in nodes.values()),
            peak_memory_mb=max((node["peak_memory_mb"] or 0.0 for node in nodes.values()), default=0.0),
            **_prepare_pipeline(run, run_history.find_upstream(nodes), folder),
            tag=tag,
        )
    )


@functools.cache
def environment() -> Environment:
    """Return the environment of the templates. Printed values are shortened, put on one line and escaped."""
    templates = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        clock=format_time_with_zone,
        duration=format_duration,
        figure=svg.format_figure,
        slice_name=format_slice_name,
        check_rows=make_check_rows,
        change=_format_change,
    )
    templates.globals.update(style=_STYLE, script=_SCRIPT, policy=policy)
    templates.globals.update(
        draw_bars=svg.draw_bars, draw_lines=svg.draw_lines, draw_points=svg.draw_points, draw_ranges=svg.draw_ranges
    )
    return templates


def policy(live: object) -> str:
    """Return the Content-Security-Policy of a page.

    It allows only the style and the images that are inside the page.

    Args:
      live: Whether the page is live. If true, the policy also allows the page's script and requests to its server.
    """
    script = f"script-src {_hash_source(_SCRIPT)}; connect-src 'self'; " if live else ""
    style = f"style-src {_hash_source(_STYLE)}; img-src data:; "
    return f"default-src 'none'; {style}{script}form-action 'none'; base-uri 'none'"


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _finalize(value: Any) -> Any:
    """Convert a value before a template prints it.

    Markup is printed unchanged. Other values are printed as text, without control characters and characters that
    change the writing direction.
    """
    if isinstance(value, Markup):
        return value
    return "" if value is None else plain(value, 300)


def _list_result_tables(summary: RunSummary) -> list[ResultTable]:
    """Return the tables with the results that nodes have recorded."""
    tables = (NODES_WITH_RESULT[name].tabulate(result) for name, result in summary.results.items())
    return [table for table in tables if table is not None]


def _list_sections(summary: RunSummary) -> list[tuple[str, str, Markup]]:
    """Return the sections on the results that nodes have recorded."""
    sections = (NODES_WITH_RESULT[name].make_section(result) for name, result in summary.results.items())
    return [_fill_template(section) for section in sections if section is not None]


def _fill_template(section: ReportSection) -> tuple[str, str, Markup]:
    """Return the ID, the title and the HTML of a section."""
    template = environment().from_string(section.template.read_text(encoding="utf-8"))
    return section.id, section.title, Markup(template.render(section.values))  # noqa: S704 - the template escapes


def _describe_forced_blessing(summary: RunSummary) -> str | None:
    failed = sum(not check.passed for check in summary.checks)
    return f"by force: {summary.forced}; {failed} failed" if summary.forced else None


def _list_rows(summary: RunSummary) -> list[tuple[str, int]]:
    read = {} if summary.rows_read is None else {"read": summary.rows_read}
    unmatched = [
        (f"without a match in {', '.join(join['path'])}", join["rows"] - join["matched"]) for join in summary.joins
    ]
    return [*read.items(), *summary.rows.items(), *summary.rows_excluded.items(), *unmatched]


def _prepare_pipeline(run: Mapping[str, Any], upstream: Mapping[str, Sequence[str]], folder: Path) -> dict[str, Any]:
    return {
        "graph": node_graph.draw(run["nodes"], upstream),
        "nodes": _prepare_nodes(run, folder)[:_NODES],
        "nodes_left": max(0, len(run["nodes"]) - _NODES),
    }


def _prepare_nodes(run: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    longest = max((node["seconds"] for node in run["nodes"].values()), default=0.0) or 1.0
    return [
        {"name": name, **node, "share": min(node["seconds"] / longest, 1.0), "link": _link_log(node["log"], folder)}
        for name, node in run["nodes"].items()
    ]


def _link_log(log: str | None, folder: Path) -> Markup | None:
    """Return the relative link to a log. None unless the log exists in the folder of the page."""
    if log is None or Path(log).parent != folder or not Path(log).exists():
        return None
    return Markup(quote(Path(log).name))  # noqa: S704 - after quoting for a URL, no character needs escaping


def _prepare_data(content: Content) -> dict[str, Any]:
    """Return the columns. Columns with anomalies come first, then the columns that have changed most."""
    splits = list(content.columns)
    names = list(dict.fromkeys(name for columns in content.columns.values() for name in columns))
    anomalous = {anomaly.column for anomaly in content.anomalies}
    distances = {change.name: change.distance for change in content.before.changes} if content.before else {}
    names.sort(key=lambda name: (name not in anomalous, -(distances.get(name) or 0.0)))
    return {
        "splits": splits[:_SPLITS],
        "splits_left": max(0, len(splits) - _SPLITS),
        "columns": [_prepare_card(content, name, name in anomalous, distances.get(name)) for name in names[:_COLUMNS]],
        "columns_left": max(0, len(names) - _COLUMNS),
        "count": len(names),
        "before": content.before,
    }


def _prepare_card(content: Content, name: str, anomalous: bool, distance: float | None) -> dict[str, Any]:
    by_split = {split: content.columns[split].get(name) for split in list(content.columns)[:_SPLITS]}
    columns = {split: column for split, column in by_split.items() if column is not None}
    first = next(iter(columns.values()), None)
    over = svg.choose_histogram_range([column.histogram for column in columns.values()])
    return {
        "name": name,
        "type": first.type if first else "",
        "anomalous": anomalous,
        "distance": distance,
        "missing": {split: column.missing for split, column in columns.items()},
        "histograms": {
            split: svg.draw_histogram(column.histogram, over, f"{name} in {split}")
            for split, column in columns.items()
            if column.histogram
        },
        "figures": _list_figures(first) if first else [],
        "top": _list_frequent_texts(columns),
    }


def _list_figures(column: Column) -> list[tuple[str, str]]:
    values = {"min": column.least, "median": column.median, "max": column.greatest, "distinct": column.distinct}
    return [(name, svg.format_figure(value)) for name, value in values.items() if value is not None]


def _list_frequent_texts(columns: Mapping[str, Column]) -> list[tuple[str, dict[str, float]]]:
    """Return the most frequent texts of the first split, each with its shares by split."""
    first = next(iter(columns.values()), None)
    if first is None:
        return []
    texts = sorted(first.shares, key=lambda text: -first.shares[text])[:_TOP]
    return [(text, {split: column.shares.get(text, 0.0) for split, column in columns.items()}) for text in texts]


def _list_changed_columns(content: Content) -> list[tuple[str, float | None]]:
    """Return the columns that have changed since the previous run, with their distances."""
    changes = content.before.changes if content.before else []
    return [(change.name, change.distance) for change in changes if change.changed][:_ANOMALIES]


def _prepare_training(content: Content) -> dict[str, Any]:
    names = sorted(content.curves, key=lambda name: ("loss" not in name, name))
    return {
        "curves": [_prepare_curve(name, content.curves[name]) for name in names[:_CURVES]],
        "curves_left": max(0, len(names) - _CURVES),
        "counts": content.summary.training,
        "tasks": content.summary.tasks[:_TASKS],
        "tasks_left": max(0, len(content.summary.tasks) - _TASKS),
        "tuned": trial_values.one_line(content.summary.tuned) if content.summary.tuned else None,
    }


def _prepare_curve(name: str, kinds: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, Any]:
    lines = dict(list(kinds.items())[:_LINES])
    return {
        "name": name,
        "chart": svg.draw_lines(lines, f"{name} by step"),
        "kinds": [(kind, points[-1][1]) for kind, points in lines.items()],
        "left": len(kinds) - len(lines),
    }


def _prepare_evaluation(content: Content, charts: evaluation_charts.EvaluationCharts | None) -> dict[str, Any]:
    summary = content.summary
    slices = make_metric_rows(summary, _SLICES)
    checks = make_check_rows(summary.checks)
    quality, rates = split_metric_names(summary.metrics)
    names = [*quality, *rates]
    return {
        "checks": checks[:_CHECKS],
        "checks_left": max(0, len(checks) - _CHECKS),
        "metrics": names[:_METRICS],
        "metrics_left": max(0, len(names) - _METRICS),
        "warnings": summary.warnings[:_CHECKS],
        "warnings_left": max(0, len(summary.warnings) - _CHECKS),
        "references": select_reference_values(summary),
        "decisions": list_decisions(summary),
        "slices": slices,
        "slices_left": max(0, len(summary.slices) - _SLICES),
        "intervals": any(metrics.intervals for metrics in slices),
        "plots": charts,
        "importance": _prepare_importance(content.importance) if content.importance else None,
        "selection": dependence_charts.prepare_selection(content.importance) if content.importance else None,
        "dependence": content.dependence and dependence_charts.prepare_dependence(content.dependence, content.classes),
        "mistakes": None if content.mistakes is None else [_prepare_mistake(mistake) for mistake in content.mistakes],
    }


def _prepare_mistake(mistake: Mistake) -> dict[str, Any]:
    """Return a mistake with its thumbnail as a `data:` URL, which contains the image itself."""
    try:
        # Decode and encode the text, so that the URL certainly contains only base64.
        encoded = base64.b64encode(base64.b64decode(mistake.thumbnail, validate=True)).decode()
    except ValueError:
        encoded = ""
    source = Markup(f"data:image/jpeg;base64,{encoded}") if encoded else None  # noqa: S704
    return {"source": source, **asdict(mistake)}


def _prepare_importance(importance: Importance) -> dict[str, Any]:
    """Return a chart of the columns' importance on the whole split, and a table of it by column and slice."""
    overall, slices = importance.slices[0], importance.slices[:_SLICES_OF_IMPORTANCE]
    columns = overall.columns[:_ROWS]
    losses_by_slice = [{column.column: column.loss for column in part.columns} for part in slices]
    bars = [(column.column, column.loss.value, column.loss.interval) for column in columns]
    return {
        "metric": importance.metric,
        "rows": overall.rows,
        "chart": svg.draw_ranges(bars, f"Increase of {importance.metric} by column"),
        "slices": [format_slice_name(part.slice) for part in slices],
        "slices_left": len(importance.slices) - len(slices),
        "columns": [
            {
                "column": column.column,
                "share": column.share,
                "auc": column.auc,
                "losses": [losses.get(column.column) for losses in losses_by_slice],
            }
            for column in columns
        ],
        "columns_left": len(overall.columns) - len(columns),
        "auc": any(column.auc for column in columns),
    }


def draw_charts(content: Content) -> evaluation_charts.EvaluationCharts | None:
    """Draw the charts of a run's evaluation. Return None if their data was not recorded."""
    if content.plots is None:
        return None
    metrics = {evaluation_charts.MODEL: content.summary.metrics, evaluation_charts.BASELINE: content.summary.baseline}
    return evaluation_charts.draw(content.plots, metrics, content.classes)


def _format_change(value: float, baseline: float) -> str:
    """Return the signed difference between a value and the baseline's value."""
    if not math.isfinite(value - baseline):
        return "not comparable"
    return f"{value - baseline:+.2g}".replace("-", "\N{MINUS SIGN}", 1)


def _prepare_lineage(content: Content) -> dict[str, Any] | None:
    """Return the tree from the model up to the data, and the number of branches that are left out."""
    if content.lineage is None:
        return None
    count = itertools.count(1)
    tree = _prepare_branch(lineage.trees(content.lineage)[0], count)
    return {"tree": tree, "left": max(0, next(count) - 1 - _BRANCHES)}


def _prepare_branch(tree: Tree, count: Iterator[int]) -> dict[str, Any]:
    """Return a branch with its sub-branches.

    Args:
      tree: The branch.
      count: Numbers the branches of the whole tree. Branches with a number above the maximum are left out.
    """
    number, lines, below = next(count), str(tree.label).split("\n"), []
    for subtree in tree.children:
        if str(subtree.label) == _ABOVE:
            lines[-1] += f" {_ABOVE}"
            continue
        branch = _prepare_branch(subtree, count)
        if branch["number"] <= _BRANCHES:
            below.append(branch)
    return {"number": number, "lines": lines, "below": below}


def _prepare_config(config: Any) -> dict[str, Any] | None:
    if config is None:
        return None
    lines = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100).splitlines()
    return {"lines": lines[:_CONFIG_LINES], "left": max(0, len(lines) - _CONFIG_LINES)}
