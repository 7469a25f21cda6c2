"""A run's report as one page of HTML that needs nothing else: no script, no font, no request."""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from components.evaluator.config import RATES
from components.evaluator.verdict import Check, Measured, told_slice
from components.tuner import values
from pipeline.metadata import drawing, story
from pipeline.metadata.data import Column
from pipeline.metadata.facts import Facts
from pipeline.metadata.words import clock, duration, plain
from pipeline.report import charts, graph, plots

if TYPE_CHECKING:
    from pipeline.report.content import Content

# No page grows without end, whatever the run was; what is left out is counted on it.
_NODES = 500
_ROWS = 30
_COLUMNS = 100
_SPLITS = 4
_SLICES = 100
_CHECKS = 200
_METRICS = 12
_HEADLINES = 4
_ANOMALIES = 100
_FEATURES = 500
_CURVES = 24
_LINES = 6
_BRANCHES = 400
_CONFIG_LINES = 3000
_TOP = 5
_TEMPLATES = Path(__file__).parent / "templates"
_STYLE = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
_SCRIPT = (_TEMPLATES / "live.js").read_text(encoding="utf-8")
_ABOVE = "(above)"
"""Of a branch of the lineage that stands further up in full."""


def rendered(content: Content, folder: Path, tag: str = "") -> str:
    """The page.

    Args:
      content: of the report.
      folder: in which the page will lie; logs below it are linked.
      tag: of the page's version, if it is to ask for newer ones of itself.
    """
    told, facts = content.told, content.facts
    return (
        environment()
        .get_template("report.html")
        .render(
            run=told,
            facts=facts,
            missing=content.missing,
            forced=_forced(facts),
            failed=[check for check in facts.checks if not check.passed][:_HEADLINES],
            headlines=_headlines(facts),
            rows=_rows(facts)[:_ROWS],
            **_pipeline(told, content.upstream, folder),
            data=_data(content),
            anomalies=content.anomalies[:_ANOMALIES],
            anomalies_left=max(0, len(content.anomalies) - _ANOMALIES),
            judged=content.judged,
            features=content.features[:_FEATURES],
            features_left=max(0, len(content.features) - _FEATURES),
            vocabularies=dict(list(content.vocabularies.items())[:_FEATURES]),
            training=_training(content),
            evaluation=_evaluation(content),
            manifest=content.manifest,
            lineage=_lineage(content),
            environment=content.environment,
            config=_config(content.config),
            columns_changed=_changed(content),
            tag=tag,
        )
    )


def progress(told: Mapping[str, Any], folder: Path, tag: str) -> str:
    """The page of a run that goes on, or that no store knows: its nodes, with their times and memory.

    Args:
      told: the run, as `story.of_record` or `story.of_run` has it.
      folder: with the run's logs.
      tag: of the page's version.
    """
    nodes = told["nodes"]
    return (
        environment()
        .get_template("progress.html")
        .render(
            run=told,
            count=len(nodes),
            ended=sum(node["state"] not in ("waiting", "running") for node in nodes.values()),
            now=[name for name, node in nodes.items() if told["state"] == node["state"] == "running"],
            cpu_seconds=sum(node["cpu_seconds"] or 0.0 for node in nodes.values()),
            peak_memory_mb=max((node["peak_memory_mb"] or 0.0 for node in nodes.values()), default=0.0),
            **_pipeline(told, story.upstream(nodes), folder),
            tag=tag,
        )
    )


@functools.cache
def environment() -> Environment:
    """The templates; whatever they print is escaped, and first put on one line and cut by `plain`."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(clock=clock, duration=duration, figure=charts.figure, slice_words=told_slice, change=_change)
    made.globals.update(style=_STYLE, script=_SCRIPT, policy=policy)
    return made


def policy(live: object) -> str:
    """What a page may load and do: nothing but its own style, and if it is live, its own script and newer versions."""
    allowed = f"script-src {_digest(_SCRIPT)}; connect-src 'self'; img-src data:; " if live else ""
    return f"default-src 'none'; style-src {_digest(_STYLE)}; {allowed}form-action 'none'; base-uri 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _shown(value: Any) -> Any:
    """What a template prints: markup as it is, all else as a text without signs that hide or reorder others."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else plain(value, 300)


def _headlines(facts: Facts) -> list[dict[str, Any]]:
    """The metrics that have a bound come first."""
    bound = [check.metric for check in facts.checks if not check.slice]
    names = [name for name in dict.fromkeys((*bound, *facts.metrics)) if name in facts.metrics and name not in RATES]
    return [
        {
            "name": name,
            "value": facts.metrics[name],
            "interval": facts.intervals.get(name),
            "baseline": facts.baseline.get(name),
        }
        for name in names[:_HEADLINES]
    ]


def _forced(facts: Facts) -> str | None:
    failed = sum(not check.passed for check in facts.checks)
    return f"by force: {facts.forced}; {failed} failed" if facts.forced else None


def _rows(facts: Facts) -> list[tuple[str, int]]:
    others = {"quarantined": facts.rows_quarantined, "left out in a gap": facts.rows_left_out}
    read = {} if facts.rows_read is None else {"read": facts.rows_read}
    return [*read.items(), *facts.rows.items(), *((name, count) for name, count in others.items() if count)]


def _pipeline(told: Mapping[str, Any], above: Mapping[str, Sequence[str]], folder: Path) -> dict[str, Any]:
    return {
        "graph": graph.draw(told["nodes"], above),
        "nodes": _nodes(told, folder)[:_NODES],
        "nodes_left": max(0, len(told["nodes"]) - _NODES),
    }


def _nodes(told: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    longest = max((node["seconds"] for node in told["nodes"].values()), default=0.0) or 1.0
    return [
        {"name": name, **node, "share": min(node["seconds"] / longest, 1.0), "link": _log(node["log"], folder)}
        for name, node in told["nodes"].items()
    ]


def _log(log: str | None, folder: Path) -> Markup | None:
    if log is None or Path(log).parent != folder or not Path(log).exists():
        return None
    return Markup(quote(Path(log).name))  # noqa: S704 - quoted for a URL, so there is no sign left to escape


def _data(content: Content) -> dict[str, Any]:
    """The columns, those first that something was found in, or that have changed most."""
    splits = list(content.columns)
    names = list(dict.fromkeys(name for several in content.columns.values() for name in several))
    anomalous = {each.column for each in content.anomalies}
    distances = {each.name: each.distance for each in content.before.changes} if content.before else {}
    names.sort(key=lambda name: (name not in anomalous, -(distances.get(name) or 0.0)))
    return {
        "splits": splits[:_SPLITS],
        "splits_left": max(0, len(splits) - _SPLITS),
        "columns": [_card(content, name, name in anomalous, distances.get(name)) for name in names[:_COLUMNS]],
        "columns_left": max(0, len(names) - _COLUMNS),
        "count": len(names),
        "before": content.before,
    }


def _card(content: Content, name: str, anomalous: bool, distance: float | None) -> dict[str, Any]:
    sides = {split: content.columns[split].get(name) for split in list(content.columns)[:_SPLITS]}
    there = {split: column for split, column in sides.items() if column is not None}
    first = next(iter(there.values()), None)
    over = charts.span([column.histogram for column in there.values()])
    return {
        "name": name,
        "type": first.type if first else "",
        "anomalous": anomalous,
        "distance": distance,
        "missing": {split: column.missing for split, column in there.items()},
        "histograms": {
            split: charts.histogram(column.histogram, over, f"{name} in {split}")
            for split, column in there.items()
            if column.histogram
        },
        "figures": _figures(first) if first else [],
        "top": _top(there),
    }


def _figures(column: Column) -> list[tuple[str, str]]:
    """Of the first split."""
    told = {"min": column.least, "median": column.median, "max": column.greatest, "distinct": column.distinct}
    return [(name, charts.figure(value)) for name, value in told.items() if value is not None]


def _top(columns: Mapping[str, Column]) -> list[tuple[str, dict[str, float]]]:
    """The most frequent texts of the first split, and their shares in each."""
    first = next(iter(columns.values()), None)
    if first is None:
        return []
    texts = sorted(first.shares, key=lambda text: -first.shares[text])[:_TOP]
    return [(text, {split: column.shares.get(text, 0.0) for split, column in columns.items()}) for text in texts]


def _changed(content: Content) -> list[tuple[str, float | None]]:
    """Columns that are not as in the run before."""
    changes = content.before.changes if content.before else []
    return [(each.name, each.distance) for each in changes if each.changed][:_ANOMALIES]


def _training(content: Content) -> dict[str, Any]:
    names = sorted(content.curves, key=lambda name: ("loss" not in name, name))
    return {
        "curves": [_curve(name, content.curves[name]) for name in names[:_CURVES]],
        "curves_left": max(0, len(names) - _CURVES),
        "counts": content.facts.training,
        "tuned": values.shown(content.facts.tuned) if content.facts.tuned else None,
    }


def _curve(name: str, kinds: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, Any]:
    some = dict(list(kinds.items())[:_LINES])
    return {
        "name": name,
        "chart": charts.lines(some, f"{name} by step"),
        "kinds": [(kind, points[-1][1]) for kind, points in some.items()],
        "left": len(kinds) - len(some),
    }


def _evaluation(content: Content) -> dict[str, Any]:
    """Checks that failed come first; of many slices those with the most rows stay."""
    facts = content.facts
    whole = Measured({}, facts.rows_evaluated or 0, facts.metrics, facts.baseline, facts.intervals)
    kept = sorted(range(len(facts.slices)), key=lambda at: -facts.slices[at].rows)[:_SLICES]
    slices = [whole, *(facts.slices[at] for at in sorted(kept))]
    names = [*(name for name in facts.metrics if name not in RATES), *(name for name in facts.metrics if name in RATES)]
    checks = sorted(facts.checks, key=lambda check: check.passed)
    return {
        "checks": [(check, _outcome(check)) for check in checks[:_CHECKS]],
        "checks_left": max(0, len(checks) - _CHECKS),
        "metrics": names[:_METRICS],
        "metrics_left": max(0, len(names) - _METRICS),
        "slices": slices if facts.metrics or facts.slices else [],
        "slices_left": max(0, len(facts.slices) - _SLICES),
        "intervals": any(each.intervals for each in slices),
        "plots": _plots(content),
    }


def _plots(content: Content) -> plots.Shown | None:
    if content.plots is None:
        return None
    metrics = {plots.MODEL: content.facts.metrics, plots.BASELINE: content.facts.baseline}
    return plots.shown(content.plots, metrics, content.classes)


def _outcome(check: Check) -> str:
    if not check.judged:
        return "not judged"
    return "pass" if check.passed else "fail"


def _change(value: float, baseline: float) -> str:
    """How far a value is from the baseline's, with its sign."""
    if not math.isfinite(value - baseline):
        return "not comparable"
    return f"{value - baseline:+.2g}".replace("-", "\N{MINUS SIGN}", 1)


def _lineage(content: Content) -> dict[str, Any] | None:
    """The tree up to the data, as nested lists of texts."""
    if content.lineage is None:
        return None
    room = [_BRANCHES]
    up = _branch(drawing.trees(content.lineage)[0], room)
    return {"tree": up, "left": max(0, -room[0])}


def _branch(tree: Any, room: list[int]) -> dict[str, Any]:
    room[0] -= 1
    lines, below = str(tree.label).split("\n"), []
    for each in tree.children:
        if str(each.label) == _ABOVE:
            lines[-1] += f" {_ABOVE}"
            continue
        there = room[0] > 0
        branch = _branch(each, room)
        if there:
            below.append(branch)
    return {"lines": lines, "below": below}


def _config(config: Any) -> dict[str, Any] | None:
    if config is None:
        return None
    lines = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100).splitlines()
    return {"lines": lines[:_CONFIG_LINES], "left": max(0, len(lines) - _CONFIG_LINES)}
