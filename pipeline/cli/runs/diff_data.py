"""`runner.py runs diff-data RUN RUN`: compare the data of two runs, column by column."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from pipeline.cli import options as shared
from pipeline.cli.output import make_table, print_json, show
from pipeline.core.text import plain

HELP = "Compare the data of two runs, column by column, the largest change first."
EXAMPLE = "python runner.py runs diff-data 20261123T193451 --split eval"
_FIGURES = ("type", "missing", "mean", "deviation", "least", "median", "greatest", "zeros", "distinct", "top")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_two_runs(parser)
    parser.add_argument("--split", default="train", help="the split to compare (default: train)")
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection import column_statistics

    opened, runs = shared.open_runs(options, options.before, options.now)
    changes = column_statistics.changes(
        *(column_statistics.columns(opened.store, run.name, options.split) for run in runs)
    )
    if options.json:
        head = {"before": runs[0].name, "now": runs[1].name, "split": options.split}
        print_json({**head, "columns": [asdict(column) for column in changes]})
        return 0
    show(f"{plain(options.split)}; before: {plain(runs[0].name)}; now: {plain(runs[1].name)}")
    rows = make_table("column", "distance", *_FIGURES)
    for column in changes:
        distance = "" if column.distance is None else f"{column.distance:.4f}"
        sides = [None if side is None else asdict(side) for side in (column.before, column.now)]
        rows.add_row(plain(column.name), distance, *(_format_change(sides, figure) for figure in _FIGURES))
    show(rows)
    return 0


def _format_change(sides: list[dict[str, Any] | None], figure: str) -> str:
    """Format a figure of both runs as `before -> now`, or once if the values are equal."""
    values = ["no column" if side is None else _format_value(side[figure]) for side in sides]
    return values[0] if values[0] == values[1] else " -> ".join(values)


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else plain(value, 40)
