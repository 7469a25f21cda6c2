"""Creates the model card of a run as Markdown and as JSON, with the fields of the Model Card Toolkit's schema.

Fields that only people can fill in, such as users and ethical considerations, stay empty.

Source: the schema of the Model Card Toolkit, version 0.0.2 (model_card.schema.json).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from components.evaluator.verdict import reference_of
from pipeline.core.records import BLESSED, QUARANTINED
from pipeline.core.text import format_time, plain
from pipeline.inspection.evaluation_tables import format_slice_name, list_decisions, make_metric_rows
from pipeline.inspection.report import evaluation_charts
from pipeline.inspection.report.answer import make_answer
from pipeline.inspection.report.content import Content
from pipeline.inspection.report.svg import format_figure

_SLICES = 1000
_CHECKS = 200
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")
_TO_DO = "*Not filled in yet.*"


def make_card(content: Content) -> dict[str, Any]:
    """Return the card as JSON values. Unknown fields are empty."""
    run, summary = content.run, content.summary
    version = {"name": summary.pushed_version or run["run"], "date": format_time(run["started"])[:10]}
    return {
        "schema_version": "0.0.2",
        "model_details": {
            "name": run["pipeline"],
            "overview": f"Produced by run {run['run']} of the pipeline {run['pipeline']}. "
            f"The model is {summary.verdict}.",
            "owners": [],
            "version": version,
            "licenses": [],
            "references": [],
            "citations": [],
            "path": summary.pushed or summary.model or "",
        },
        "model_parameters": {
            "model_architecture": _describe_architecture(content.config),
            "data": [_describe_split(content, split, count) for split, count in summary.rows.items()],
            "input_format": "Raw columns, or serialized tf.Examples",
            "input_format_map": [{"key": name, "value": kind} for name, kind in summary.column_types.items()],
            "output_format": _read_task(content.config),
        },
        "quantitative_analysis": {"performance_metrics": _list_metrics(content)},
        "considerations": {
            "users": [],
            "use_cases": [],
            "limitations": [{"description": limitation} for limitation in _list_limitations(content)],
            "tradeoffs": [],
            "ethical_considerations": [],
        },
    }


def to_json(content: Content) -> str:
    """Return the card as the text of a JSON file."""
    return json.dumps(make_card(content), indent=2) + "\n"


def to_markdown(content: Content) -> str:
    """Return the card as Markdown. Special characters of Markdown and HTML are escaped in all values."""
    fields = make_card(content)
    details, parameters, considerations = (
        fields[part] for part in ("model_details", "model_parameters", "considerations")
    )
    lines = [f"# Model card: {_escape(details['name'])}", "", *_format_answer(content)]
    lines += ["## Model details", "", _escape(details["overview"]), ""]
    lines += [f"- version: {_escape(details['version']['name'])}, {details['version']['date']}"]
    lines += [f"- folder: {_escape(details['path'])}"] if details["path"] else []
    lines += ["", "### Owners", "", _TO_DO, "", "### License", "", _TO_DO, "", "## Model parameters", ""]
    lines += (
        [f"- architecture: {_escape(parameters['model_architecture'])}"] if parameters["model_architecture"] else []
    )
    lines += [f"- input: {parameters['input_format']}"]
    lines += [f"- output: {_escape(parameters['output_format'])}"] if parameters["output_format"] else []
    lines += [
        "",
        "### Data",
        "",
        *(f"- {_escape(split['name'])}: {_escape(split['description'])}" for split in parameters["data"]),
    ]
    metrics = fields["quantitative_analysis"]["performance_metrics"]
    lines += ["", "## Quantitative analysis", "", *_format_metrics(metrics)]
    lines += _format_decisions(content)
    lines += _format_evaluation_tables(content)
    lines += ["", "## Considerations", ""]
    for part, title in (("users", "Users"), ("use_cases", "Use cases"), ("limitations", "Limitations")):
        lines += [
            f"### {title}",
            "",
            *([f"- {_escape(item['description'])}" for item in considerations[part]] or [_TO_DO]),
            "",
        ]
    lines += ["### Trade-offs", "", _TO_DO, "", "### Ethical considerations", "", _TO_DO]
    return "\n".join(lines) + "\n"


def _format_answer(content: Content) -> list[str]:
    """Return the lines of the summary, which the report begins with as well."""
    result = make_answer(content)
    lines = ["## Summary", "", *([f"It predicts {_escape(result.predicts)}.", ""] if result.predicts else [])]
    if result.measurements:
        titles = (
            "metric",
            "model",
            reference_of(content.summary.constant),
            "linear model",
            "previous model",
            "in words",
        )
        lines += [_format_row(titles), f"|{'---|' * len(titles)}"]
        lines += [
            _format_row(
                (
                    f"{each.metric}, {each.better}" if each.better else each.metric,
                    *(
                        "" if value is None else format_figure(value)
                        for value in (each.value, each.constant, each.linear, each.baseline)
                    ),
                    each.judgement,
                )
            )
            for each in result.measurements
        ]
        lines.append("")
    uses = ", ".join(f"{column} ({share:.0%})" for column, share in result.uses)
    parts = {
        "Why": [remark.text for remark in result.reasons],
        "Where it fails": [remark.text for remark in result.failures],
        "What it uses most": [uses] if uses else [],
        "Warnings": result.warnings[:_CHECKS],
        f"What changed since run {result.before}": result.changes,
    }
    for title, texts in parts.items():
        lines += [f"### {_escape(title)}", "", *(f"- {_escape(text)}" for text in texts), ""] if texts else []
    return lines


def _escape(value: object) -> str:
    return _SPECIAL.sub(r"\\\1", plain(value, 1000))


def _format_metrics(metrics: list[dict[str, Any]]) -> list[str]:
    if not metrics:
        return ["*No metric was evaluated.*"]
    heading = ["| metric | slice | value | 95 % confidence | threshold |", "|---|---|---|---|---|"]
    return heading + [
        _format_row(
            (
                metric["type"],
                metric.get("slice", ""),
                metric["value"],
                _format_interval(metric),
                metric.get("threshold", ""),
            )
        )
        for metric in metrics
    ]


def _format_row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _format_interval(metric: dict[str, Any]) -> str:
    ends = metric.get("confidence_interval")
    return f"{ends['lower_bound']} to {ends['upper_bound']}" if ends else ""


def _format_decisions(content: Content) -> list[str]:
    """Return the lines on the thresholds of the model, with the metrics of its decisions."""
    lines = []
    for decision in list_decisions(content.summary):
        title = f"### Decision: {_escape(decision.label)}" if decision.label else "### Decision"
        lines += ["", title, "", f"{_escape(decision.text)}.", ""]
        titles = ("metric", "validation rows", "eval split", "best constant", "previous model")
        lines += [_format_row(titles), f"|{'---|' * len(titles)}"]
        lines += [
            _format_row((name, *("" if value is None else format_figure(value) for value in values)))
            for name, values in decision.rows.items()
        ]
    return lines


def _format_evaluation_tables(content: Content) -> list[str]:
    """Return the lines of two tables: the model's confusion matrix, and its mean labels by mean prediction."""
    plots = content.plots
    if plots is None:
        return []
    lines = []
    for matrix in evaluation_charts.draw(plots, {}, content.classes).matrices[:1]:
        heading, *rows = evaluation_charts.format_table(matrix)
        lines += ["", "### Confusion matrix", "", _format_row(heading), "|" + "---|" * len(heading)]
        lines += map(_format_row, rows)
    if plots.candidate.predictions:
        lines += ["", "### Labels by prediction", "", "| mean prediction | mean label | rows |", "|---|---|---|"]
        lines += [_format_row(map(format_figure, row)) for row in evaluation_charts.calibration_rows(plots)]
    return lines


def _list_metrics(content: Content) -> list[dict[str, Any]]:
    """Return the metrics and their bounds, first for the whole eval split, then for the slices with the most rows."""
    bounds: dict[tuple[str, str], list[str]] = {}
    for check in content.summary.checks:
        bounds.setdefault((check.metric, format_slice_name(check.slice)), []).append(check.bound)
    return [
        {"type": name, "value": format_figure(value)}
        | ({"slice": slice_label} if row.slice else {})
        | ({"confidence_interval": _make_interval(row.intervals[name])} if name in row.intervals else {})
        | ({"threshold": "; ".join(bounds[name, slice_label])} if (name, slice_label) in bounds else {})
        for row in make_metric_rows(content.summary, _SLICES)
        for slice_label in [format_slice_name(row.slice)]
        for name, value in row.metrics.items()
    ]


def _make_interval(interval: tuple[float, float]) -> dict[str, str]:
    low, high = interval
    return {"lower_bound": format_figure(low), "upper_bound": format_figure(high)}


def _describe_split(content: Content, split: str, count: int) -> dict[str, Any]:
    columns = content.columns.get(split)
    return {"name": split, "description": f"{count:,} rows" + (f" of {len(columns):,} columns" if columns else "")}


def _describe_architecture(config: Any) -> str:
    model = config.get("model") if isinstance(config, dict) else None
    if not isinstance(model, dict):
        return ""
    user_function = model.get("run_fn") or model.get("build") or model.get("train")
    return f"custom model: {user_function}" if user_function else str(model.get("kind", ""))


def _read_task(config: Any) -> str:
    section = config.get("data") if isinstance(config, dict) else None
    return str(section.get("task") or "") if isinstance(section, dict) else ""


def _list_limitations(content: Content) -> list[str]:
    """Return the limitations that follow from the evaluation and the data of the run."""
    summary = content.summary
    limitations = [] if summary.verdict == BLESSED else [f"The model is {summary.verdict}."]
    limitations += [f"It was blessed by force: {summary.forced}"] if summary.forced else []
    limitations += [f"It does not meet a bound: {check}" for check in summary.checks[:_CHECKS] if not check.passed]
    limitations += [f"Warning: {warning}" for warning in summary.warnings[:_CHECKS]]
    limitations += [
        f"A bound could not be judged: {check.metric} where {format_slice_name(check.slice)}: {check.why}"
        for check in summary.checks[:_CHECKS]
        if not check.judged
    ]
    if QUARANTINED in summary.rows_excluded:
        limitations.append(f"{summary.rows_excluded[QUARANTINED]:,} bad rows were quarantined before the training.")
    return limitations
