"""`runner.py store gc`: list or remove artifacts that neither a kept run nor a pushed version needs."""

from __future__ import annotations

import argparse
import contextlib

from components.base.errors import InputError
from pipeline.cli.options import add_config, add_json, load_config, open_config_store
from pipeline.cli.output import make_table, print_json, show
from pipeline.core import run_locks
from pipeline.core.text import format_time, plain

HELP = "Find artifacts that neither a kept run nor a pushed version needs; nothing is removed without --delete."
EXAMPLE = "python runner.py store gc --keep 5 --delete"
_RUNS_TO_KEEP = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--keep", type=int, default=_RUNS_TO_KEEP, metavar="N", help=f"newest runs to keep (default: {_RUNS_TO_KEEP})"
    )
    parser.add_argument("--delete", action="store_true", help="remove them; without it they are only listed")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection.unused_artifacts import find_unused, remove
    from pipeline.registry.versions import PushFolder

    if options.keep < 1:
        raise InputError(f"--keep: expected at least 1 run, received {options.keep}", "name a number from 1")
    config = load_config(options).config
    paths = config.paths()
    store = open_config_store(config).store
    if config.runtime.artifacts is not None:
        raise InputError(
            f"gc removes artifacts in {paths.root} only, but runtime.artifacts is {config.runtime.artifacts}",
            "define a lifecycle rule for the bucket",
        )
    with run_locks.artifacts_unused(paths.root) if options.delete else contextlib.nullcontext():
        versions = map(str, PushFolder(paths.pushed, None).versions())
        removable = find_unused(store, paths.root / "artifacts", config.pipeline.name, options.keep, tuple(versions))
        if options.delete:
            remove(paths.store, removable)
    size = sum(entry.bytes for entry in removable)
    if options.json:
        artifacts = [{"id": entry.artifact.id, "uri": entry.artifact.uri, "bytes": entry.bytes} for entry in removable]
        print_json({"artifacts": artifacts, "bytes": size, "deleted": options.delete})
        return 0
    if not removable:
        show("all artifacts are needed")
        return 0
    rows = make_table("artifact", "type", "made", "size", "folder")
    for entry in removable:
        artifact, megabytes = entry.artifact, f"{entry.bytes / 1e6:.1f} MB"
        rows.add_row(
            str(artifact.id), plain(artifact.type), format_time(artifact.created), megabytes, plain(artifact.uri)
        )
    result = "removed" if options.delete else "not needed; --delete removes them"
    show(rows, f"{len(removable)} artifacts, {size / 1e6:.1f} MB: {result}")
    return 0
