"""`runner.py artifacts`: what the runs have made."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from components.errors import InputError
from components.names import did_you_mean
from pipeline.commands import options as shared
from pipeline.commands.told import find_run, show, table
from pipeline.metadata.words import clock, plain

HELP = "List artifacts, newest first: type, state, which node of which run made it, and where it lies."
_MOST = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the store, the filters and --json."""
    shared.add_store(parser)
    parser.add_argument("--type", metavar="TYPE", help="of this type alone: Model, Examples, …")
    parser.add_argument("--run", metavar="RUN", help="that this run has made, or taken from the cache")
    parser.add_argument("--limit", type=int, default=_MOST, help=f"no more than so many; 0: all (default: {_MOST})")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each artifact, a line each")


def run(options: argparse.Namespace) -> int:
    """Lists.

    Raises:
      InputError: there is no such type or run.
      MachineError: the store does not open.
    """
    place = shared.open_store(options)
    types = place.store.artifact_types()
    if options.type is not None and options.type not in types:
        raise InputError(
            f"--type: there is no artifact of type {options.type!r}{did_you_mean(options.type, types)}",
            f"there are {', '.join(types) or 'none yet'}",
        )
    limit = options.limit or -1
    if options.run is None:
        found = place.store.newest_artifacts(options.type, limit)
    else:
        of_run = place.store.artifacts(find_run(place.store, place.pipeline, options.run).name, options.type)
        found = of_run[::-1][: None if limit < 0 else limit]
    makers = place.store.makers(each.id for each in found)
    executions = {each.id: each for each in place.store.executions_by_id(makers.values())}
    rows = table("artifact", "type", "state", "made", "by", "in run", "folder")
    for each in found:
        maker = executions.get(makers.get(each.id, 0))
        made_by, in_run = (maker.node, maker.run) if maker else ("", "")
        if options.json:
            sys.stdout.write(json.dumps({**asdict(each), "node": made_by, "run": in_run}) + "\n")
        rows.add_row(
            str(each.id), plain(each.type), each.state, clock(each.created), made_by, plain(in_run), plain(each.uri)
        )
    if not options.json:
        show(rows if found else "no artifact is like this" if options.type or options.run else "no artifact yet")
    return 0
