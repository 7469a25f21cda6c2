"""`runner.py store artifacts`: list artifacts."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from components.base.errors import InputError
from components.base.names import did_you_mean
from pipeline.cli import options as shared
from pipeline.cli.output import make_table, print_json, show
from pipeline.core.text import format_time, plain

HELP = "List artifacts, newest first: type, state, the node and run that produced it, and its folder."
EXAMPLE = "python runner.py store artifacts --type Model"
_LIMIT = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_store(parser)
    parser.add_argument("--type", metavar="TYPE", help="only this type: Model, Examples, …")
    parser.add_argument("--run", metavar="RUN", help="only outputs of this run, also if taken from the cache")
    parser.add_argument("--limit", type=int, default=_LIMIT, help=f"maximum number; 0: all (default: {_LIMIT})")
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
        run_artifacts = opened.store.artifacts(opened.find_run(options.run).name, options.type)
        artifacts = run_artifacts[::-1][: None if limit < 0 else limit]
    makers = opened.store.makers(artifact.id for artifact in artifacts)
    executions = {execution.id: execution for execution in opened.store.executions_by_id(makers.values())}
    rows = make_table("artifact", "type", "state", "made", "by", "in run", "folder")
    for artifact in artifacts:
        maker = executions.get(makers.get(artifact.id, 0))
        node, run_id = (maker.node, maker.run) if maker else ("", "")
        if options.json:
            print_json({**asdict(artifact), "node": node, "run": run_id})
        rows.add_row(
            str(artifact.id),
            plain(artifact.type),
            artifact.state,
            format_time(artifact.created),
            node,
            plain(run_id),
            plain(artifact.uri),
        )
    if not options.json:
        show(rows if artifacts else "no artifact matches" if options.type or options.run else "no artifact yet")
    return 0
