"""`runner.py gc`: finds, and removes, what no run that is to be kept and no pushed version needs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from components.errors import InputError
from pipeline.commands.options import add_config, load_config, open_own
from pipeline.commands.told import show, table
from pipeline.metadata.words import clock, plain

HELP = "Find artifacts that no run to keep and no pushed version needs; nothing is removed without --delete."
_KEPT = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the config, --keep, --delete and --json."""
    add_config(parser)
    parser.add_argument(
        "--keep", type=int, default=_KEPT, metavar="N", help=f"the newest runs that stay whole (default: {_KEPT})"
    )
    parser.add_argument("--delete", action="store_true", help="remove them; without it they are only listed")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(options: argparse.Namespace) -> int:
    """Lists or removes them.

    Raises:
      InputError: nothing has run yet, a run is going on, --keep is no number of runs, or the artifacts lie elsewhere.
      MachineError: the store does not open.
    """
    from pipeline.metadata.unused import remove, unused
    from pipeline.paths import Paths
    from pipeline.registry.place import Place

    if options.keep < 1:
        raise InputError(f"--keep: expected at least 1 run, received {options.keep}", "keep one at least")
    config = load_config(options).config
    paths = Paths.of(config)
    store = open_own(config).store
    if config.runtime.artifacts is not None:
        raise InputError(
            f"gc removes what lies in {paths.root}, and runtime.artifacts is {config.runtime.artifacts}",
            "give that place a lifecycle rule of its own",
        )
    place = Place(paths.pushed, None, None)
    # Nothing may have been pushed yet.
    versions = map(str, place.versions()) if place.is_remote or Path(paths.pushed).exists() else ()
    found = unused(store, paths.root / "artifacts", config.pipeline.name, options.keep, tuple(versions))
    if options.delete:
        remove(paths.store, found)
    size = sum(each.bytes for each in found)
    if options.json:
        artifacts = [{"id": each.artifact.id, "uri": each.artifact.uri, "bytes": each.bytes} for each in found]
        json.dump({"artifacts": artifacts, "bytes": size, "deleted": options.delete}, sys.stdout)
        sys.stdout.write("\n")
        return 0
    if not found:
        show("everything there is is needed")
        return 0
    rows = table("artifact", "type", "made", "size", "folder")
    for each in found:
        artifact, megabytes = each.artifact, f"{each.bytes / 1e6:.1f} MB"
        rows.add_row(str(artifact.id), plain(artifact.type), clock(artifact.created), megabytes, plain(artifact.uri))
    done = "removed" if options.delete else "can go; --delete removes them"
    show(rows, f"{len(found)} artifacts, {size / 1e6:.1f} MB: {done}")
    return 0
