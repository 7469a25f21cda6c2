"""`runner.py models`: list the pushed versions with their stages and the content of their manifests."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from pipeline.cli.options import add_models, find_push_folder
from pipeline.cli.output import make_table, print_json, show
from pipeline.registry import versions

HELP = "List the pushed versions, newest first: stage, run, metrics, size, digest."
EXAMPLE = "python runner.py models list --output out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object, with the history, and nothing else")


def run(options: argparse.Namespace) -> int:
    push_folder = find_push_folder(options)
    rows = versions.list_versions(push_folder)
    if options.json:
        stages = push_folder.state().model_dump(mode="json", by_alias=True, include={"stable", "canary", "history"})
        listing = {"folder": push_folder.path, **stages, "versions": [asdict(row) for row in rows]}
        print_json(listing)
    elif rows:
        _show(rows)
    else:
        sys.stdout.write(f"{push_folder.path}: no version was pushed yet\n")
    return 0


def _show(rows: list[versions.VersionListEntry]) -> None:
    table = make_table("version", "stage", "pushed", "run", "metrics", "size", "digest", "manifest")
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
    show(table, *(row.problem for row in rows if row.problem))
