"""The model card of a run, with the fields of the Model Card Toolkit's schema, as Markdown and as JSON.

Fields that only people can fill in, such as users and ethical considerations, are empty.

Source: the schema of the Model Card Toolkit, version 0.0.2 (model_card.schema.json).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from pipeline.core.records import BLESSED
from pipeline.core.text import clock, plain
from pipeline.inspection.evaluation_tables import metric_rows, slice_name
from pipeline.inspection.report import evaluation_charts
from pipeline.inspection.report.content import Content
from pipeline.inspection.report.svg import figure

_SLICES = 1000
_CHECKS = 200
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")
_TO_DO = "*Not filled in yet.*"


def card(content: Content) -> dict[str, Any]:
    """Returns the card as JSON values; unknown fields are empty."""
    run, summary = content.run, content.summary
    version = {"name": summary.pushed_version or run["run"], "date": clock(run["started"])[:10]}
    return {
        "schema_version": "0.0.2",
        "model_details": {
            "name": run["pipeline"],
            "overview": f"Made by run {run['run']} of the pipeline {run['pipeline']}; the model is {summary.verdict}.",
            "owners": [],
            "version": version,
            "licenses": [],
            "references": [],
            "citations": [],
            "path": summary.pushed or summary.model or "",
        },
        "model_parameters": {
            "model_architecture": _architecture(content.config),
            "data": [_split(content, split, count) for split, count in summary.rows.items()],
            "input_format": "Raw columns, or serialized tf.Examples",
            "input_format_map": [{"key": name, "value": kind} for name, kind in summary.column_types.items()],
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


def to_json(content: Content) -> str:
    """Returns the card as the text of a JSON file."""
    return json.dumps(card(content), indent=2) + "\n"


def to_markdown(content: Content) -> str:
    """Returns the card as Markdown; special characters of Markdown and HTML in names are escaped."""
    fields = card(content)
    details, parameters, considerations = (
        fields[part] for part in ("model_details", "model_parameters", "considerations")
    )
    lines = [f"# Model card: {_text(details['name'])}", "", "## Model details", "", _text(details["overview"]), ""]
    lines += [f"- version: {_text(details['version']['name'])}, {details['version']['date']}"]
    lines += [f"- folder: {_text(details['path'])}"] if details["path"] else []
    lines += ["", "### Owners", "", _TO_DO, "", "### License", "", _TO_DO, "", "## Model parameters", ""]
    lines += [f"- architecture: {_text(parameters['model_architecture'])}"] if parameters["model_architecture"] else []
    lines += [f"- input: {parameters['input_format']}"]
    lines += [f"- output: {_text(parameters['output_format'])}"] if parameters["output_format"] else []
    lines += [
        "",
        "### Data",
        "",
        *(f"- {_text(each['name'])}: {_text(each['description'])}" for each in parameters["data"]),
    ]
    lines += ["", "## Quantitative analysis", "", *_table(fields["quantitative_analysis"]["performance_metrics"])]
    lines += _evaluation_tables(content)
    lines += ["", "## Considerations", ""]
    for part, title in (("users", "Users"), ("use_cases", "Use cases"), ("limitations", "Limitations")):
        lines += [
            f"### {title}",
            "",
            *([f"- {_text(each['description'])}" for each in considerations[part]] or [_TO_DO]),
            "",
        ]
    lines += ["### Trade-offs", "", _TO_DO, "", "### Ethical considerations", "", _TO_DO]
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    return _SPECIAL.sub(r"\\\1", plain(value, 1000))


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


def _evaluation_tables(content: Content) -> list[str]:
    """Returns the model's confusion matrix and its labels by prediction as tables."""
    plots = content.plots
    if plots is None:
        return []
    lines = []
    for matrix in evaluation_charts.draw(plots, {}, content.classes).matrices[:1]:
        head, *rows = evaluation_charts.table(matrix)
        lines += ["", "### Confusion matrix", "", _row(head), "|" + "---|" * len(head), *map(_row, rows)]
    if plots.candidate.predictions:
        lines += ["", "### Labels by prediction", "", "| mean prediction | mean label | rows |", "|---|---|---|"]
        lines += [_row(map(figure, each)) for each in evaluation_charts.calibration_rows(plots)]
    return lines


def _metrics(content: Content) -> list[dict[str, Any]]:
    """Returns the metrics of the whole eval split, then of the slices with the most rows, each with its bounds."""
    bounds: dict[tuple[str, str], list[str]] = {}
    for check in content.summary.checks:
        bounds.setdefault((check.metric, slice_name(check.slice)), []).append(check.bound)
    return [
        {"type": name, "value": figure(value)}
        | ({"slice": where} if row.slice else {})
        | ({"confidence_interval": _ends(row.intervals[name])} if name in row.intervals else {})
        | ({"threshold": "; ".join(bounds[name, where])} if (name, where) in bounds else {})
        for row in metric_rows(content.summary, _SLICES)
        for where in [slice_name(row.slice)]
        for name, value in row.metrics.items()
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
    """Returns the limitations that the run itself has measured."""
    summary = content.summary
    limitations = [] if summary.verdict == BLESSED else [f"The model is {summary.verdict}."]
    limitations += [f"It was blessed by force: {summary.forced}"] if summary.forced else []
    limitations += [f"It does not meet a bound: {check}" for check in summary.checks[:_CHECKS] if not check.passed]
    limitations += [f"Warning: {warning}" for warning in summary.warnings[:_CHECKS]]
    limitations += [
        f"A bound could not be judged: {check.metric} where {slice_name(check.slice)}: {check.why}"
        for check in summary.checks[:_CHECKS]
        if not check.judged
    ]
    if summary.rows_quarantined:
        limitations.append(f"{summary.rows_quarantined:,} bad rows were quarantined before the training.")
    return limitations
