"""`runner.py runs`: the runs of a pipeline: state, duration, span, verdict, metrics, pushed version."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import datetime

from components.errors import InputError
from pipeline.commands import options as shared
from pipeline.commands.told import show, table
from pipeline.metadata.words import clock, duration, plain

HELP = "List the runs, newest first: state, duration, span, verdict, metrics, pushed version."
STATES = ("done", "rejected", "failed", "interrupted", "running", "died")
_MOST = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the store, the filters and --json."""
    shared.add_store(parser)
    parser.add_argument("--limit", type=int, default=_MOST, help=f"no more than so many; 0: all (default: {_MOST})")
    parser.add_argument("--state", action="append", default=[], choices=STATES, help="in this state alone; repeatable")
    parser.add_argument("--since", metavar="TIME", help="begun then or later: 2026-11-22, or 2026-11-22T14:00")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each run, a line each")


def run(options: argparse.Namespace) -> int:
    """Lists.

    Raises:
      InputError: there is no store yet, or --since is no time.
      MachineError: the store does not open.
    """
    from pipeline.metadata import history

    place = shared.open_store(options)
    rows = history.rows(
        place.store, place.logs, place.pipeline, options.limit or None, options.state, _seconds(options.since)
    )
    if options.json:
        for row in rows:
            sys.stdout.write(json.dumps(asdict(row)) + "\n")
            sys.stdout.flush()
        return 0
    found = table("run", "pipeline", "state", "started", "took", "span", "verdict", "metrics", "pushed")
    for row in rows:
        found.add_row(
            plain(row.run),
            plain(row.pipeline),
            row.state,
            clock(row.started),
            duration(row.seconds),
            " ".join(map(str, row.spans)),
            row.verdict or "",
            ", ".join(f"{name} {value:.4g}" for name, value in list(row.metrics.items())[:2]),
            row.version or "",
        )
    if found.row_count:
        show(found)
    else:
        sys.stdout.write("no run is like this\n" if options.state or options.since else "no run yet\n")
    return 0


def _seconds(told: str | None) -> float:
    """A local time as seconds since the epoch."""
    if told is None:
        return 0.0
    try:
        return datetime.fromisoformat(told).timestamp()
    except ValueError as error:
        raise InputError(
            f"--since: expected a time such as 2026-11-22 or 2026-11-22T14:00, received {told!r}", "write it like these"
        ) from error
