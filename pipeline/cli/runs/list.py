"""`runner.py runs`: list the runs with state, duration, span, verdict, metrics and pushed version."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import datetime

from components.base.errors import InputError
from pipeline.cli import options as shared
from pipeline.cli.output import make_table, print_json, show
from pipeline.core.text import format_duration, format_time, plain

HELP = "List the runs, newest first: state, duration, span, verdict, metrics, pushed version."
EXAMPLE = "python runner.py runs list --state failed --limit 5"
STATES = ("done", "rejected", "failed", "interrupted", "running", "died")
_LIMIT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_store(parser)
    parser.add_argument("--limit", type=int, default=_LIMIT, help=f"maximum number; 0: all (default: {_LIMIT})")
    parser.add_argument("--state", action="append", default=[], choices=STATES, help="only this state; repeatable")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="only runs that started at this local time or later: 2026-11-22, or 2026-11-22T14:00",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object per line for each run")


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection import run_history

    opened = shared.open_store(options)
    runs = run_history.list_runs(
        opened.store, opened.logs, opened.pipeline, options.limit or None, options.state, _parse_time(options.since)
    )
    if options.json:
        for entry in runs:
            print_json(asdict(entry))
            sys.stdout.flush()
        return 0
    rows = make_table("run", "pipeline", "state", "started", "took", "span", "verdict", "metrics", "pushed")
    for entry in runs:
        rows.add_row(
            plain(entry.run),
            plain(entry.pipeline),
            entry.state,
            format_time(entry.started),
            format_duration(entry.seconds),
            " ".join(map(str, entry.spans)),
            entry.verdict or "",
            ", ".join(f"{name} {value:.4g}" for name, value in list(entry.metrics.items())[:2]),
            entry.version or "",
        )
    if rows.row_count:
        show(rows)
    else:
        sys.stdout.write("no run matches\n" if options.state or options.since else "no run yet\n")
    return 0


def _parse_time(text: str | None) -> float:
    """Parse a local time, and return seconds since the epoch; return 0 for None."""
    if text is None:
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise InputError(
            f"--since: expected a time such as 2026-11-22 or 2026-11-22T14:00, received {text!r}",
            "write the time in one of these forms",
        ) from error
