"""Lists the decisions of `init` with their reasons: one row per column, and one line per choice about the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.authoring.scaffold import Draft
from pipeline.authoring.scaffold.feature_choice import FeatureChoice
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.sample import kind

_KINDS = {"int": "whole numbers", "float": "numbers", "bytes": "text", "lists": "lists", "missing": "empty"}


@dataclass(frozen=True)
class ColumnDecision:
    """The decision on a column: its kind, its operations ("-" if it is not a feature), and the reason."""

    column: str
    kind: str
    features: str
    why: str


def list_column_decisions(draft: Draft) -> Iterator[ColumnDecision]:
    """Yield one decision per column, in the order of the data."""
    for name, choice in draft.columns.items():
        features = ", ".join(map(_name, choice.ops)) if isinstance(choice, FeatureChoice) else "-"
        yield ColumnDecision(name, _KINDS[kind(draft.table.columns[name])], features, choice.why)


def list_table_decisions(draft: Draft) -> Iterator[tuple[str, str]]:
    """Yield the decisions about the whole table, as (subject, decision with its reason)."""
    for note in draft.table.format_notes:
        yield "format", note
    yield "label", "; ".join((draft.task.label, *draft.task.notes))
    yield "task", f"{draft.task.task}: {_why_task(draft.task)}"
    if draft.defaults.why_split:
        yield "split", draft.defaults.why_split
    if draft.protected:
        excluded = [name for name in draft.protected if name not in draft.features]
        names = f"{', '.join(draft.protected)}: attributes of persons"
        yield "protected", f"{names}; --keep {' '.join(excluded)} makes them features" if excluded else names
    for cross in draft.crosses:
        yield "cross", f"{' and '.join(cross.columns)}: {cross.why}"
    yield "model", f"{draft.defaults.model['kind']}: {draft.defaults.why_model}"
    training = draft.defaults.training
    most = "at most " if "early_stopping" in training else ""
    # Trees do not have steps.
    steps = f"{most}{training['steps']:,} steps: " if "steps" in training else ""
    yield "training", f"{steps}{draft.defaults.why_training}"


def _name(op: Any) -> str:
    """Return the name of an operation, which a config writes as `vocab` or `{vocab: {size: 10}}`."""
    return op if isinstance(op, str) else str(next(iter(op)))


def _why_task(task: LearningTask) -> str:
    if task.task == "regression":
        return "the label is a number"
    values = ", ".join(f"{value!r} in {rows:,} rows" for value, rows in list(task.classes.items())[:3])
    return f"the label has {len(task.classes)} values: {values}{', ...' if len(task.classes) > 3 else ''}"
