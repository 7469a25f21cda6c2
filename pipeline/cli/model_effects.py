"""Prints unneeded columns with the change of the config, partial dependence and interactions, for `explain`."""

from __future__ import annotations

import argparse
import difflib
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from components.base.errors import InputError
from components.base.files import write_atomically
from components.base.names import did_you_mean
from pipeline.cli.output import make_table, print_json, show
from pipeline.core.text import plain
from pipeline.inspection.dependence_tables import format_output, format_point, list_selected, summarize_selection

if TYPE_CHECKING:
    from components.evaluator.dependence import ColumnDependence, Dependence
    from components.evaluator.importance import Estimate, Importance
    from pipeline.core.metadata.store import Run


def show_selection(selected: Run, importance: Importance, options: argparse.Namespace) -> int:
    """Print the columns whose importance is inside the noise, and the change of the config without unneeded ones."""
    if importance.selection is None:
        raise InputError(
            f"run {selected.name} did not look for unneeded columns: an earlier release evaluated it",
            "run the Evaluator again",
        )
    unneeded = importance.selection.unneeded
    text, difference = _make_change(unneeded, options) if unneeded and options.config else ("", "")
    if options.json:
        record = {"run": selected.name, "metric": importance.metric, **asdict(importance.selection)}
        print_json({**record, "change": difference or None})
    else:
        rows = make_table("column", "proposal", f"increase of {importance.metric}", "why")
        for column in list_selected(importance):
            proposal = "drop" if column.is_unneeded else "keep"
            rows.add_row(plain(column.column), proposal, _format_loss(column.loss), plain(column.reason, 300))
        show(f"run {selected.name}: {summarize_selection(importance)}", rows)
        if unneeded:
            absent = f"the features of {options.config} do not contain these columns"
            without = absent if options.config else "--config FILE prints the change of the config"
            show("", difference.rstrip() or without)
    if options.apply and difference:
        write_atomically(Path(options.config), text)
    return 0


def _format_loss(loss: Estimate | None) -> str:
    if loss is None:
        return ""
    ends = "" if loss.interval is None else " ({:.4g} to {:.4g})".format(*loss.interval)
    return f"{loss.value:.4g}{ends}"


def _make_change(columns: Collection[str], options: argparse.Namespace) -> tuple[str, str]:
    """Return the text of the config without columns, and the difference in the unified format.

    Raises:
      InputError: The columns cannot be removed, or the config is not valid without them.
    """
    from pipeline.authoring.config import load
    from pipeline.authoring.config.column_removal import remove_columns

    path = Path(options.config)
    text = path.read_text(encoding="utf-8")
    shortened = remove_columns(text, columns)
    with tempfile.TemporaryDirectory() as folder:
        # The name of the file becomes the name of the pipeline.
        file = Path(folder) / path.name
        file.write_text(shortened, encoding="utf-8")
        try:
            load(str(file), options.set)
        except InputError as error:
            headline = error.headline.replace(str(file), str(path))
            details = [detail.replace(str(file), str(path)) for detail in error.details]
            raise InputError(
                f"without the columns {', '.join(columns)}, {headline}", "remove the columns by hand", details
            ) from error
    before, after = (lines.splitlines(keepends=True) for lines in (text, shortened))
    return shortened, "".join(difflib.unified_diff(before, after, str(path), str(path)))


def show_dependence(
    selected: Run, dependence: Dependence | None, classes: Sequence[str], options: argparse.Namespace
) -> int:
    """Print the partial dependence on the most important columns, or on one of them, and interactions.

    Args:
      selected: The run.
      dependence: The partial dependence; None if it was not recorded.
      classes: Names of the classes, by number. Empty if they are unknown.
      options: Options of the command.
    """
    if dependence is None or dependence.unknown:
        why = dependence.unknown if dependence else "it was not recorded"
        raise InputError(
            f"run {selected.name} has no partial dependence: {why}",
            "run the Evaluator again, or set evaluation.dependence_columns",
        )
    columns = [column for column in dependence.columns if options.dependence in ("", column.column)]
    if not columns:
        names = [column.column for column in dependence.columns]
        reason = dependence.skipped.get(options.dependence)
        raise InputError(
            f"--dependence: nothing was measured for {options.dependence!r}"
            f"{f', because {reason}' if reason else did_you_mean(options.dependence, names)}",
            f"name one of {', '.join(names)}, or set evaluation.dependence_columns",
        )
    if options.json:
        described = asdict(dependence)
        described["columns"] = [asdict(column) for column in columns]
        print_json({"run": selected.name, **described})
        return 0
    for column in columns:
        _show_column(dependence.output, column, classes)
    if dependence.interactions:
        rows = make_table("columns", numbers=("strength", "H"))
        for pair in dependence.interactions:
            rows.add_row(", ".join(map(plain, pair.columns)), f"{pair.strength:.4g}", f"{pair.h:.3f}")
        show("", f"interactions: {dependence.scale}, {dependence.interaction_rows:,} rows", rows)
    notes = [f"{plain(name)} is left out: {plain(why)}" for name, why in dependence.skipped.items()]
    for note in (*notes, *map(plain, dependence.notes)):
        show(note)
    return 0


def _show_column(output: str, column: ColumnDependence, classes: Sequence[str]) -> None:
    numbers = [
        name
        for curve in column.curves
        for name in (f"mean {format_output(output, curve.output, classes)}", "10 % of rows", "90 % of rows")
    ]
    rows = make_table(plain(column.column), numbers=numbers)
    for at, point in enumerate(column.points):
        values = [value for curve in column.curves for value in (curve.means[at], curve.low[at], curve.high[at])]
        rows.add_row(plain(format_point(point)), *(f"{value:.4g}" for value in values))
    show(rows, "")
