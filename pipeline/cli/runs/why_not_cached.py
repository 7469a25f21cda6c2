"""`runner.py runs why-not-cached NODE`: explain why a node was executed instead of reusing cached outputs."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from pipeline.cli import options as shared
from pipeline.cli.output import make_table, print_json, show
from pipeline.core.text import plain

HELP = "Show why a node was executed and not cached: the inputs and parameters that have changed."
EXAMPLE = "python runner.py runs why-not-cached Trainer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", help="the node")
    parser.add_argument("--run", metavar="RUN", default=shared.LATEST, help="the run (default: the latest)")
    shared.add_store(parser)
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection.cache_reasons import why_not_cached

    opened, [selected] = shared.open_runs(options, options.run)
    reason = why_not_cached(opened.store, selected, options.node)
    if options.json:
        print_json(asdict(reason))
        return 0
    node_in_run = f"{plain(options.node)} in run {plain(selected.name)}"
    if reason.execution.state == "CACHED":
        show(f"{node_in_run} was cached")
        return 0
    if reason.earlier is None:
        show(f"{node_in_run} was executed: it has not succeeded before")
        return 0
    show(f"{node_in_run} was executed. The earlier run that differs least is {plain(reason.earlier.run)}:")
    rows = make_table("kind", "name", "before", "now")
    for difference in reason.differences:
        values = (difference.before, difference.now)
        before, now = ("none" if value is None else plain(value, 80) for value in values)
        rows.add_row(difference.kind, plain(difference.name), before, now)
    if reason.differences:
        show(rows)
    for artifact in reason.gone:
        show(f"its output {artifact.type} {artifact.id} cannot be used any more: {artifact.state.lower()}")
    if not reason.differences and not reason.gone:
        show("inputs and parameters are the same: the cache was off, or this node is never cached")
    for node in reason.after:
        show(f"{plain(node)} was executed and changed an input: python runner.py runs why-not-cached {plain(node)}")
    return 0
