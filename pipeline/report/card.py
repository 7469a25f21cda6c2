"""A model card of a run, in the fields of the Model Card Toolkit's schema, as Markdown and as JSON.

What only people know (who the model is for, what speaks against its use) is left empty for them to write.

Source: the schema of the Model Card Toolkit, version 0.0.2 (model_card.schema.json).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from components.evaluator.verdict import told_slice
from pipeline.metadata.facts import BLESSED
from pipeline.metadata.words import clock, plain
from pipeline.report import plots
from pipeline.report.charts import figure
from pipeline.report.content import Content

_SLICES = 1000
_CHECKS = 200
_SIGNS = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")
_UNWRITTEN = "*Nobody has written this down yet.*"


def card(content: Content) -> dict[str, Any]:
    """The card as JSON values; a part of which nothing is known is empty."""
    told, facts = content.told, content.facts
    version = {"name": facts.pushed_version or told["run"], "date": clock(told["started"])[:10]}
    return {
        "schema_version": "0.0.2",
        "model_details": {
            "name": told["pipeline"],
            "overview": f"Made by run {told['run']} of the pipeline {told['pipeline']}; the model is {facts.verdict}.",
            "owners": [],
            "version": version,
            "licenses": [],
            "references": [],
            "citations": [],
            "path": facts.pushed or facts.model or "",
        },
        "model_parameters": {
            "model_architecture": _architecture(content.config),
            "data": [_split(content, split, count) for split, count in facts.rows.items()],
            "input_format": "Raw columns, or serialized tf.Examples",
            "input_format_map": [{"key": name, "value": kind} for name, kind in facts.column_types.items()],
            "output_format": _task(content.config),
        },
        "quantitative_analysis": {"performance_metrics": _metrics(content)},
        "considerations": {
            "users": [],
            "use_cases": [],
            "limitations": [{"description": each} for each in _limitations(content)],
            "tradeoffs": [],
            "ethical_considerations": [],
        },
    }


def as_json(content: Content) -> str:
    """The card's file of JSON."""
    return json.dumps(card(content), indent=2) + "\n"


def as_markdown(content: Content) -> str:
    """The card's file of Markdown; no sign of what it tells is taken for Markdown's, or HTML's, own."""
    told = card(content)
    details, parameters, considerations = (
        told[part] for part in ("model_details", "model_parameters", "considerations")
    )
    lines = [f"# Model card: {_text(details['name'])}", "", "## Model details", "", _text(details["overview"]), ""]
    lines += [f"- version: {_text(details['version']['name'])}, {details['version']['date']}"]
    lines += [f"- folder: {_text(details['path'])}"] if details["path"] else []
    lines += ["", "### Owners", "", _UNWRITTEN, "", "### License", "", _UNWRITTEN, "", "## Model parameters", ""]
    lines += [f"- architecture: {_text(parameters['model_architecture'])}"] if parameters["model_architecture"] else []
    lines += [f"- input: {parameters['input_format']}"]
    lines += [f"- output: {_text(parameters['output_format'])}"] if parameters["output_format"] else []
    lines += [
        "",
        "### Data",
        "",
        *(f"- {_text(each['name'])}: {_text(each['description'])}" for each in parameters["data"]),
    ]
    lines += ["", "## Quantitative analysis", "", *_table(told["quantitative_analysis"]["performance_metrics"])]
    lines += _drawn(content)
    lines += ["", "## Considerations", ""]
    for part, words in (("users", "Users"), ("use_cases", "Use cases"), ("limitations", "Limitations")):
        lines += [
            f"### {words}",
            "",
            *([f"- {_text(each['description'])}" for each in considerations[part]] or [_UNWRITTEN]),
            "",
        ]
    lines += ["### Trade-offs", "", _UNWRITTEN, "", "### Ethical considerations", "", _UNWRITTEN]
    return "\n".join(lines) + "\n"


def _text(told: object) -> str:
    return _SIGNS.sub(r"\\\1", plain(told, 1000))


def _table(metrics: list[dict[str, Any]]) -> list[str]:
    if not metrics:
        return ["*Nothing was measured.*"]
    head = ["| metric | slice | value | 95 % confidence | threshold |", "|---|---|---|---|---|"]
    return head + [
        _row((each["type"], each.get("slice", ""), each["value"], _interval(each), each.get("threshold", "")))
        for each in metrics
    ]


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(_text(each) for each in cells) + " |"


def _interval(metric: dict[str, Any]) -> str:
    ends = metric.get("confidence_interval")
    return f"{ends['lower_bound']} to {ends['upper_bound']}" if ends else ""


def _drawn(content: Content) -> list[str]:
    """What the report draws, as tables: the matrix of the model, and labels by prediction."""
    told = content.plots
    if told is None:
        return []
    lines = []
    for matrix in plots.shown(told, {}, content.classes).matrices[:1]:
        head, *rows = plots.table(matrix)
        lines += ["", "### Confusion matrix", "", _row(head), "|" + "---|" * len(head), *map(_row, rows)]
    if told.candidate.predictions:
        lines += ["", "### Labels by prediction", "", "| mean prediction | mean label | rows |", "|---|---|---|"]
        lines += [_row(map(figure, each)) for each in plots.calibration_rows(told)]
    return lines


def _metrics(content: Content) -> list[dict[str, Any]]:
    """The whole eval split first, then the slices with the most rows; each with its bounds, if it has any."""
    facts = content.facts
    bounds: dict[tuple[str, str], list[str]] = {}
    for check in facts.checks:
        bounds.setdefault((check.metric, told_slice(check.slice)), []).append(check.bound)
    largest = sorted(facts.slices, key=lambda each: -each.rows)[:_SLICES]
    sides = [
        ("", facts.metrics, facts.intervals),
        *((told_slice(each.slice), each.metrics, each.intervals) for each in largest),
    ]
    return [
        {"type": name, "value": figure(value)}
        | ({"slice": where} if where else {})
        | ({"confidence_interval": _ends(intervals[name])} if name in intervals else {})
        | ({"threshold": "; ".join(bounds[name, where])} if (name, where) in bounds else {})
        for where, metrics, intervals in sides
        for name, value in metrics.items()
    ]


def _ends(interval: tuple[float, float]) -> dict[str, str]:
    low, high = interval
    return {"lower_bound": figure(low), "upper_bound": figure(high)}


def _split(content: Content, split: str, count: int) -> dict[str, Any]:
    columns = content.columns.get(split)
    return {"name": split, "description": f"{count:,} rows" + (f" of {len(columns):,} columns" if columns else "")}


def _architecture(config: Any) -> str:
    model = config.get("model") if isinstance(config, dict) else None
    if not isinstance(model, dict):
        return ""
    own = model.get("run_fn") or model.get("build")
    return f"of the user's own: {own}" if own else str(model.get("kind", ""))


def _task(config: Any) -> str:
    section = config.get("data") if isinstance(config, dict) else None
    return str(section.get("task") or "") if isinstance(section, dict) else ""


def _limitations(content: Content) -> list[str]:
    """What the run itself knows against the model."""
    facts = content.facts
    found = [] if facts.verdict == BLESSED else [f"The model is {facts.verdict}."]
    found += [f"It was blessed by force: {facts.forced}"] if facts.forced else []
    found += [f"It does not keep a bound: {check}" for check in facts.checks[:_CHECKS] if not check.passed]
    found += [
        f"A bound could not be judged: {check.metric} where {told_slice(check.slice) or 'overall'}: {check.why}"
        for check in facts.checks[:_CHECKS]
        if not check.judged
    ]
    found += (
        [f"{facts.rows_quarantined:,} bad rows were set aside before the training."] if facts.rows_quarantined else []
    )
    return found
