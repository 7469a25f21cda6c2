"""Describes unneeded columns, partial dependence and interactions in words, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.evaluator.dependence import GridPoint
from components.evaluator.importance import Estimate, Importance

_KINDS = {"others": "(other texts)", "missing": "(missing)"}


@dataclass(frozen=True)
class SelectedColumn:
    """A column whose importance is inside the noise.

    Attributes:
      column: Name of the column.
      loss: Increase of the mean loss if the column is shuffled alone; None if it was not measured.
      is_unneeded: Whether the model predicts equally well without the column.
      reason: Reason why the column is unneeded, or why it stays.
    """

    column: str
    loss: Estimate | None
    is_unneeded: bool
    reason: str


def list_selected(importance: Importance) -> list[SelectedColumn]:
    """Return the columns whose importance is inside the noise, with unneeded columns first."""
    selection = importance.selection
    if selection is None:
        return []
    losses = {column.column: column.loss for column in importance.slices[0].columns}
    unneeded = [SelectedColumn(name, losses.get(name), True, "inside the noise") for name in selection.unneeded]
    return [*unneeded, *(SelectedColumn(name, losses.get(name), False, why) for name, why in selection.kept.items())]


def summarize_selection(importance: Importance) -> str:
    """Return a sentence about the number of unneeded columns, and how much they matter together."""
    selection, columns = importance.selection, importance.slices[0].columns
    if selection is None or selection.loss is None:
        return f"0 of {len(columns)} columns could be dropped"
    ends = "" if selection.loss.interval is None else " ({:.4g} to {:.4g})".format(*selection.loss.interval)
    effect = f"shuffled together, they increase {importance.metric} by {selection.loss.value:.4g}{ends}"
    share = f"of {importance.slices[0].loss:.4g}; at most {selection.limit:.4g} counts as noise"
    return f"{len(selection.unneeded)} of {len(columns)} columns could be dropped; {effect} {share}"


def format_point(point: GridPoint) -> str:
    """Return the name of a point of a grid."""
    if point.kind != "value":
        return _KINDS[point.kind]
    return f"{point.value:.6g}" if isinstance(point.value, float) else str(point.value)


def format_output(output: str, number: int | None, classes: Sequence[str]) -> str:
    """Return the name of a prediction.

    Args:
      output: Name of the output: `prediction` or `probability`.
      number: Number of the class; None if the model has a single prediction.
      classes: Names of the classes, by number. Empty if they are unknown.
    """
    if number is None:
        return output
    return f"{output} of {classes[number] if number < len(classes) else number}"
