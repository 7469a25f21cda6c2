"""`runner.py compare RUN RUN`: two runs side by side."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from components.evaluator.verdict import told_slice
from pipeline.commands import options as shared
from pipeline.commands.told import LATEST, find_run, only_ours, show, table
from pipeline.metadata.words import plain

HELP = "Hold two runs against each other: config, schema, data, metrics by slice, the model's size and latency."
_MOST = 40
_MISSING = "not there in both runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the runs, the store, --all and --json."""
    parser.add_argument("before", help="the first run: its id, or how that begins")
    parser.add_argument("now", nargs="?", default=LATEST, help="the second one (default: the latest)")
    shared.add_store(parser)
    parser.add_argument("--all", action="store_true", help=f"also what comes after {_MOST} lines")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(options: argparse.Namespace) -> int:
    """Compares.

    Raises:
      InputError: there is no such run.
      MachineError: the store does not open.
    """
    from pipeline.metadata.difference import compare

    place = shared.open_store(options)
    runs = [find_run(place.store, place.pipeline, name) for name in (options.before, options.now)]
    with only_ours():
        told = compare(place.store, place.logs, *runs)
    if options.json:
        json.dump(told, sys.stdout)
        sys.stdout.write("\n")
        return 0
    most = None if options.all else _MOST
    show(f"before: {plain(told['before'])}; now: {plain(told['now'])}")
    _pairs("config", told["config"], most)
    _pairs("schema", told["schema"], most)
    _pairs("rows", told["rows"], most, alike="no rows were counted")
    _distances(told["columns"], most)
    _metrics(told["metrics"], most)
    _pairs("model", told["model"], most)
    for name in ("verdict", "version"):
        show(f"{name}: {' -> '.join('none' if value is None else plain(value) for value in told[name])}")
    return 0


def _pairs(what: str, pairs: dict[str, list[Any]] | None, most: int | None, alike: str = "the same") -> None:
    if not pairs:
        show(f"{what}: {_MISSING if pairs is None else alike}")
        return
    rows = table(what, "before", "now")
    for name, values in list(pairs.items())[:most]:
        rows.add_row(plain(name), *("nothing" if value is None else plain(_number(value)) for value in values))
    show(rows, *_left(len(pairs), most))


def _distances(columns: dict[str, float | None] | None, most: int | None) -> None:
    if not columns:
        show(f"columns: {_MISSING if columns is None else 'none has changed'}")
        return
    rows = table("column", "distance")
    for name, distance in list(columns.items())[:most]:
        rows.add_row(plain(name), "only in one" if distance is None else f"{distance:.4f}")
    show(rows, *_left(len(columns), most))


def _metrics(metrics: list[dict[str, Any]], most: int | None) -> None:
    rows = table("metric", "slice", "before", "now", "change")
    for each in metrics[:most]:
        both = each["before"], each["now"]
        change = "" if None in both else f"{both[1] - both[0]:+.4f}"
        shown = ("none" if value is None else f"{value:.4f}" for value in both)
        rows.add_row(plain(each["metric"]), plain(told_slice(each["slice"])), *shown, change)
    if metrics:
        show(rows, *_left(len(metrics), most))


def _left(count: int, most: int | None) -> list[str]:
    return [] if most is None or count <= most else [f"… and {count - most} more: --all"]


def _number(value: Any) -> Any:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
