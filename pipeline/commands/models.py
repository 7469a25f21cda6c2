"""`runner.py models`: the pushed versions, which of them serve, and what their manifests say."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from components.pusher import state
from pipeline.commands.options import add_models
from pipeline.registry import listing
from pipeline.registry.place import of_options

HELP = "List the pushed versions, newest first: stage, run, metrics, size, digest."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --models or --config, and --json."""
    add_models(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object, with the history, and nothing else")


def run(options: argparse.Namespace) -> int:
    """Lists.

    Raises:
      InputError: there is no such folder, or its state is damaged.
    """
    place = of_options(options)
    rows = listing.rows(place)
    if options.json:
        now = state.State() if place.is_remote else state.read(place.folder)
        stages = now.model_dump(mode="json", by_alias=True, include={"stable", "canary", "history"})
        told = {"folder": place.folder, **stages, "versions": [asdict(row) for row in rows]}
        sys.stdout.write(json.dumps(told) + "\n")
    elif rows:
        _show(rows)
    else:
        sys.stdout.write(f"{place.folder}: no version was pushed yet\n")
    return 0


def _show(rows: list[listing.Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("version", "stage", "pushed", "run", "metrics", "size", "digest", "manifest", box=None)
    for row in rows:
        table.add_row(
            str(row.version),
            row.stage,
            (row.created or "").removesuffix("+00:00"),
            row.run or "",
            ", ".join(f"{name} {value:.4g}" for name, value in list((row.metrics or {}).items())[:2]),
            "" if row.bytes is None else f"{row.bytes / 1e6:.1f} MB",
            (row.digest or "")[:12],
            row.manifest,
        )
    # On a pipe as wide as it takes: a table that is cut tells less.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(table, highlight=False, markup=False)
    for row in rows:
        if row.problem:
            console.print(row.problem, highlight=False, markup=False, soft_wrap=True)
