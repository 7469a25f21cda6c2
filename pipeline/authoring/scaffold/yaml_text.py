"""Writes the draft of a config as YAML, with a comment on every choice."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from components.ingest.text_config import CsvConfig
from pipeline.authoring.scaffold.crosses import CrossChoice
from pipeline.authoring.scaffold.defaults import TrainingDefaults
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.sample import Table

_ALLOWED_BAD = 0.001
"""Default of `data.bad_rows.max_fraction`."""


def document(
    paths: Sequence[str],
    schema: str,
    table: Table,
    task: LearningTask,
    columns: Mapping[str, FeatureChoice | ExcludedColumn],
    crosses: Sequence[CrossChoice],
    defaults: TrainingDefaults,
) -> str:
    """Return the text of a config.

    Args:
      paths: Paths of the data, for `data.path`.
      schema: Path of the curated schema, for `schema.path`.
      table: Sample of the data.
      task: Label and learning task.
      columns: Column name → its features, or the reason why it is excluded.
      crosses: Pairs of columns whose combination is a feature.
      defaults: Sections for split, model, training and thresholds.
    """
    return "\n".join(
        [
            *_head(table),
            *_data(paths, table, task, defaults),
            "",
            "schema:",
            f"  path: {_flow(schema)} # types and presence of the columns; made with this file, yours to edit",
            "",
            *_features(columns),
            *_crosses(crosses),
            "",
            f"model: # {defaults.why_model}",
            *(f"  # {line}" for line in defaults.figures),
            *_fields(defaults.model),
            "",
            *_training(defaults),
            "evaluation:",
            *([f"  slices: {_flow(defaults.slices)}"] if defaults.slices else []),
            *([f"  fairness: {_flow(defaults.fairness)} # set max_gap to bound it"] if defaults.fairness else []),
            f"  thresholds: # {defaults.why_thresholds}; raise it to what you need",
            *(f"    {name}: {_flow(bounds)}" for name, bounds in defaults.thresholds.items()),
            "",
        ]
    )


def _head(table: Table) -> Iterator[str]:
    files = "1 file" if table.files == 1 else f"{table.files:,} files"
    looked = "" if table.sampled >= table.rows - table.bad else f", from a sample of {table.sampled:,}"
    yield f"# Written by `runner.py init` from {table.rows:,} rows in {files}{looked}."
    yield "# Edit it as you need. docs/how-to/features.md describes the operations."


def _data(paths: Sequence[str], table: Table, task: LearningTask, defaults: TrainingDefaults) -> Iterator[str]:
    yield "data:"
    yield f"  path: {_flow(paths[0] if len(paths) == 1 else list(paths))}"
    if table.csv and (style := _style(table.csv)):
        yield f"  csv: {_flow(style)}"
    if table.bad > _ALLOWED_BAD * table.rows:
        share = min(1.0, 1.5 * table.bad / table.rows)
        comment = f"{table.bad:,} rows are invalid: they go to the run's quarantine"
        yield f"  bad_rows: {_flow({'max_fraction': float(f'{share:.2g}')})} # {comment}"
    yield f"  split: {_flow(defaults.split)}{_comment(defaults.why_split)}"
    yield f"  label: {_flow(task.label)}{_comment(_classes(task))}"
    if task.task != "binary":
        yield f"  task: {task.task}"
    for note in task.notes:
        yield from _wrap(f"# {note}", "  ")


def _features(columns: Mapping[str, FeatureChoice | ExcludedColumn]) -> Iterator[str]:
    yield "features:"
    yield "  columns:"
    for name, column in columns.items():
        if isinstance(column, FeatureChoice):
            ops = column.ops[0] if len(column.ops) == 1 else list(column.ops)
            yield f"    {_flow(name)}: {_flow(ops)} # {column.why}"
    left_out = {name: column for name, column in columns.items() if isinstance(column, ExcludedColumn)}
    if left_out:
        yield "    # Excluded:"
        for name, column in left_out.items():
            yield from _wrap(f"#   {name}: {column.why}", "    ")


def _crosses(crosses: Sequence[CrossChoice]) -> Iterator[str]:
    if crosses:
        yield "  crosses:"
    for cross in crosses:
        options = {"columns": list(cross.columns), "buckets": cross.buckets}
        yield f"    {_flow(cross.name)}: {_flow(options)} # {cross.why}"


def _fields(section: Mapping[str, Any]) -> Iterator[str]:
    for name, value in section.items():
        yield f"  {name}: {_flow(value)}"


def _training(defaults: TrainingDefaults) -> list[str]:
    if not defaults.training:
        return []
    return [f"training: # {defaults.why_training}", *_fields(defaults.training), ""]


def _classes(task: LearningTask) -> str:
    if not task.classes:
        return ""
    rows = sum(task.classes.values())
    if task.task == "binary":
        return f"true in {task.classes.get('1', 0) / rows:.1%} of the rows"
    first = ", ".join(f"{value} {count:,}" for value, count in list(task.classes.items())[:5])
    return f"{len(task.classes)} classes: {first}{', …' if len(task.classes) > 5 else ''}"


def _style(style: CsvConfig) -> dict[str, Any]:
    options: dict[str, Any] = style.model_dump(mode="json", exclude_defaults=True)
    return options


def _comment(text: str) -> str:
    return f" # {' '.join(text.split())}" if text else ""


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 116, initial_indent=indent, subsequent_indent=f"{indent}#   ")


def _flow(value: Any) -> str:
    """Format a value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.strip().removesuffix("...").strip()
