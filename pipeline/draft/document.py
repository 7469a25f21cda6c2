"""The config as text: YAML that runs as it stands, with a word on every choice."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from components.ingest.config import CsvConfig
from pipeline.draft.choice import Chosen, LeftOut
from pipeline.draft.recipe import Recipe
from pipeline.draft.table import Table
from pipeline.draft.target import Goal

_ALLOWED_BAD = 0.001
"""Share of bad rows that a config allows by itself."""


def document(
    paths: Sequence[str],
    schema: str,
    table: Table,
    goal: Goal,
    columns: Mapping[str, Chosen | LeftOut],
    recipe: Recipe,
) -> str:
    """The text of a config.

    Args:
      paths: for `data.path`.
      schema: where the curated schema was written.
      table: what was read.
      goal: what is to be learned.
      columns: what becomes of each column.
      recipe: split, model, training and thresholds.
    """
    return "\n".join(
        [
            *_head(table),
            *_data(paths, table, goal, recipe),
            "",
            "schema:",
            f"  path: {_flow(schema)} # types and presence of the columns; made with this file, yours to edit",
            "",
            *_features(columns),
            "",
            f"model: # {recipe.why_model}",
            *_fields(recipe.model),
            "",
            f"training: # {recipe.why_training}",
            *_fields(recipe.training),
            "",
            "evaluation:",
            *([f"  slices: {_flow(recipe.slices)}"] if recipe.slices else []),
            f"  thresholds: # {recipe.why_thresholds}; raise this to what you need once you know what can be had",
            *(f"    {name}: {_flow(bounds)}" for name, bounds in recipe.thresholds.items()),
            "",
        ]
    )


def _head(table: Table) -> Iterator[str]:
    files = "1 file" if table.files == 1 else f"{table.files:,} files"
    looked = "" if table.looked_at >= table.rows - table.bad else f", {table.looked_at:,} of which were looked at"
    yield f"# Written by `runner.py init` from {table.rows:,} rows in {files}{looked}."
    yield "# It is yours: edit what you know better. docs/features.md tells what each operation does."


def _data(paths: Sequence[str], table: Table, goal: Goal, recipe: Recipe) -> Iterator[str]:
    yield "data:"
    yield f"  path: {_flow(paths[0] if len(paths) == 1 else list(paths))}"
    if table.csv and (style := _style(table.csv)):
        yield f"  csv: {_flow(style)}"
    if table.bad > _ALLOWED_BAD * table.rows:
        share = min(1.0, 1.5 * table.bad / table.rows)
        told = f"{table.bad:,} rows cannot be taken: they go to the run's quarantine"
        yield f"  bad_rows: {_flow({'max_fraction': float(f'{share:.2g}')})} # {told}"
    yield f"  split: {_flow(recipe.split)}"
    yield f"  label: {_flow(goal.label)}{_comment(_classes(goal))}"
    if goal.task != "binary":
        yield f"  task: {goal.task}"
    for note in goal.notes:
        yield from _wrapped(f"# {note}", "  ")


def _features(columns: Mapping[str, Chosen | LeftOut]) -> Iterator[str]:
    yield "features:"
    yield "  columns:"
    for name, column in columns.items():
        if isinstance(column, Chosen):
            ops = column.ops[0] if len(column.ops) == 1 else list(column.ops)
            yield f"    {_flow(name)}: {_flow(ops)} # {column.why}"
    left_out = {name: column for name, column in columns.items() if isinstance(column, LeftOut)}
    if left_out:
        yield "    # Left out:"
        for name, column in left_out.items():
            yield from _wrapped(f"#   {name}: {column.why}", "    ")


def _fields(section: Mapping[str, Any]) -> Iterator[str]:
    for name, value in section.items():
        yield f"  {name}: {_flow(value)}"


def _classes(goal: Goal) -> str:
    if not goal.classes:
        return ""
    rows = sum(goal.classes.values())
    if goal.task == "binary":
        return f"true in {goal.classes.get('1', 0) / rows:.1%} of the rows"
    first = ", ".join(f"{value} {count:,}" for value, count in list(goal.classes.items())[:5])
    return f"{len(goal.classes)} classes: {first}{', …' if len(goal.classes) > 5 else ''}"


def _style(style: CsvConfig) -> dict[str, Any]:
    """What is not the usual way."""
    told: dict[str, Any] = style.model_dump(mode="json", exclude_defaults=True)
    return told


def _comment(text: str) -> str:
    return f" # {' '.join(text.split())}" if text else ""


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 116, initial_indent=indent, subsequent_indent=f"{indent}#   ")


def _flow(value: Any) -> str:
    """A value on one line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.strip().removesuffix("...").strip()
