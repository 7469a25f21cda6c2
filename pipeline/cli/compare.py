"""`runner.py compare RUN RUN`: the comparison of two runs."""

from __future__ import annotations

import argparse
from typing import Any

from pipeline.cli import options as shared
from pipeline.cli.output import LATEST, find_run, print_json, show, suppress_native_stderr, table
from pipeline.core.text import plain
from pipeline.inspection.evaluation_tables import format_change, format_slice_name

HELP = "Compare two runs: config, schema, data, metrics by slice, the model's size and latency."
_MOST = 40
_MISSING = "not available in both runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", help="the first run: its id, or the beginning of its id")
    parser.add_argument("now", nargs="?", default=LATEST, help="the second run (default: the latest)")
    shared.add_store(parser)
    parser.add_argument("--all", action="store_true", help=f"print all lines, not only the first {_MOST} of a table")
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection.comparison import compare

    opened = shared.open_store(options)
    runs = [find_run(opened.store, opened.pipeline, name) for name in (options.before, options.now)]
    with suppress_native_stderr():
        comparison = compare(opened.store, opened.logs, *runs)
    if options.json:
        print_json(comparison)
        return 0
    most = None if options.all else _MOST
    show(f"before: {plain(comparison['before'])}; now: {plain(comparison['now'])}")
    _pairs("config", comparison["config"], most)
    _pairs("schema", comparison["schema"], most)
    _pairs("rows", comparison["rows"], most, empty="no rows were counted")
    _distances(comparison["columns"], most)
    _metrics(comparison["metrics"], most)
    _pairs("model", comparison["model"], most)
    for name in ("verdict", "version"):
        show(f"{name}: {' -> '.join('none' if value is None else plain(value) for value in comparison[name])}")
    return 0


def _pairs(what: str, pairs: dict[str, list[Any]] | None, most: int | None, empty: str = "the same") -> None:
    if not pairs:
        show(f"{what}: {_MISSING if pairs is None else empty}")
        return
    rows = table(what, "before", "now")
    for name, values in list(pairs.items())[:most]:
        rows.add_row(plain(name), *("none" if value is None else plain(_number(value)) for value in values))
    show(rows, *_omitted(len(pairs), most))


def _distances(columns: dict[str, float | None] | None, most: int | None) -> None:
    if not columns:
        show(f"columns: {_MISSING if columns is None else 'none has changed'}")
        return
    rows = table("column", "distance")
    for name, distance in list(columns.items())[:most]:
        rows.add_row(plain(name), "only in one run" if distance is None else f"{distance:.4f}")
    show(rows, *_omitted(len(columns), most))


def _metrics(metrics: list[dict[str, Any]], most: int | None) -> None:
    rows = table("metric", "slice", "before", "now", "change")
    for each in metrics[:most]:
        values = each["before"], each["now"]
        texts = ("none" if value is None else f"{value:.4f}" for value in values)
        rows.add_row(plain(each["metric"]), plain(format_slice_name(each["slice"])), *texts, format_change(values))
    if metrics:
        show(rows, *_omitted(len(metrics), most))


def _omitted(count: int, most: int | None) -> list[str]:
    return [] if most is None or count <= most else [f"… and {count - most} more; print them with --all"]


def _number(value: Any) -> Any:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
