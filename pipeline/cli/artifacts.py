"""`runner.py artifacts`: the list of artifacts."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from components.errors import InputError
from components.names import did_you_mean
from pipeline.cli import options as shared
from pipeline.cli.output import find_run, print_json, show, table
from pipeline.core.text import clock, plain

HELP = "List artifacts, newest first: type, state, the node and run that made it, and its folder."
_MOST = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_store(parser)
    parser.add_argument("--type", metavar="TYPE", help="only this type: Model, Examples, …")
    parser.add_argument("--run", metavar="RUN", help="only outputs of this run, made or taken from the cache")
    parser.add_argument("--limit", type=int, default=_MOST, help=f"maximum number; 0: all (default: {_MOST})")
    parser.add_argument("--json", action="store_true", help="print a JSON object per line for each artifact")


def run(options: argparse.Namespace) -> int:
    opened = shared.open_store(options)
    types = opened.store.artifact_types()
    if options.type is not None and options.type not in types:
        raise InputError(
            f"--type: there is no artifact of type {options.type!r}{did_you_mean(options.type, types)}",
            f"there are {', '.join(types) or 'none yet'}",
        )
    limit = options.limit or -1
    if options.run is None:
        artifacts = opened.store.newest_artifacts(options.type, limit)
    else:
        of_run = opened.store.artifacts(find_run(opened.store, opened.pipeline, options.run).name, options.type)
        artifacts = of_run[::-1][: None if limit < 0 else limit]
    makers = opened.store.makers(each.id for each in artifacts)
    executions = {each.id: each for each in opened.store.executions_by_id(makers.values())}
    rows = table("artifact", "type", "state", "made", "by", "in run", "folder")
    for each in artifacts:
        maker = executions.get(makers.get(each.id, 0))
        made_by, in_run = (maker.node, maker.run) if maker else ("", "")
        if options.json:
            print_json({**asdict(each), "node": made_by, "run": in_run})
        rows.add_row(
            str(each.id), plain(each.type), each.state, clock(each.created), made_by, plain(in_run), plain(each.uri)
        )
    if not options.json:
        show(rows if artifacts else "no artifact matches" if options.type or options.run else "no artifact yet")
    return 0
