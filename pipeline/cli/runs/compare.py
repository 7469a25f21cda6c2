"""`runner.py runs compare RUN RUN`: compare two runs."""

from __future__ import annotations

import argparse
from typing import Any

from pipeline.cli import options as shared
from pipeline.cli.output import make_table, print_json, show, suppress_native_stderr
from pipeline.core.text import plain
from pipeline.inspection.evaluation_tables import format_change, format_slice_name

HELP = "Compare two runs: config, schema, data, metrics by slice, the model's size and latency."
EXAMPLE = "python runner.py runs compare 20261123T193451"
_LINES_SHOWN = 40
_MISSING = "not available in both runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_two_runs(parser)
    parser.add_argument(
        "--all", action="store_true", help=f"print all lines, not only the first {_LINES_SHOWN} of a table"
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection.comparison import compare

    opened, runs = shared.open_runs(options, options.before, options.now)
    with suppress_native_stderr():
        comparison = compare(opened.store, opened.logs, *runs)
    if options.json:
        print_json(comparison)
        return 0
    most = None if options.all else _LINES_SHOWN
    show(f"before: {plain(comparison['before'])}; now: {plain(comparison['now'])}")
    _show_pairs("config", comparison["config"], most)
    _show_pairs("schema", comparison["schema"], most)
    _show_pairs("rows", comparison["rows"], most, empty="no rows were counted")
    _show_distances(comparison["columns"], most)
    _show_metrics(comparison["metrics"], most)
    _show_pairs("model", comparison["model"], most)
    for name in ("verdict", "version"):
        show(f"{name}: {' -> '.join('none' if value is None else plain(value) for value in comparison[name])}")
    return 0


def _show_pairs(title: str, pairs: dict[str, list[Any]] | None, most: int | None, empty: str = "the same") -> None:
    if not pairs:
        show(f"{title}: {_MISSING if pairs is None else empty}")
        return
    rows = make_table(title, "before", "now")
    for name, values in list(pairs.items())[:most]:
        rows.add_row(plain(name), *("none" if value is None else plain(_format_number(value)) for value in values))
    show(rows, *_describe_omitted(len(pairs), most))


def _show_distances(columns: dict[str, float | None] | None, most: int | None) -> None:
    if not columns:
        show(f"columns: {_MISSING if columns is None else 'none has changed'}")
        return
    rows = make_table("column", "distance")
    for name, distance in list(columns.items())[:most]:
        rows.add_row(plain(name), "only in one run" if distance is None else f"{distance:.4f}")
    show(rows, *_describe_omitted(len(columns), most))


def _show_metrics(metrics: list[dict[str, Any]], most: int | None) -> None:
    rows = make_table("metric", "slice", "before", "now", "change")
    for metric in metrics[:most]:
        values = metric["before"], metric["now"]
        texts = ("none" if value is None else f"{value:.4f}" for value in values)
        rows.add_row(plain(metric["metric"]), plain(format_slice_name(metric["slice"])), *texts, format_change(values))
    if metrics:
        show(rows, *_describe_omitted(len(metrics), most))


def _describe_omitted(count: int, most: int | None) -> list[str]:
    return [] if most is None or count <= most else [f"… and {count - most} more; print them with --all"]


def _format_number(value: Any) -> Any:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
