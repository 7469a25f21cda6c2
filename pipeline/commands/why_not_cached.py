"""`runner.py why-not-cached NODE`: why a node ran, rather than take what was there."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from pipeline.commands import options as shared
from pipeline.commands.told import LATEST, find_run, show, table
from pipeline.metadata.words import plain

HELP = "Tell why a node ran, rather than take an earlier run's outputs: which input or parameter had changed."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the node, the run, the store and --json."""
    parser.add_argument("node", help="the node")
    parser.add_argument("--run", metavar="RUN", default=LATEST, help="in which run (default: the latest)")
    shared.add_store(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(options: argparse.Namespace) -> int:
    """Tells it.

    Raises:
      InputError: there is no such run or node.
      MachineError: the store does not open.
    """
    from pipeline.metadata.reasons import why_not_cached

    place = shared.open_store(options)
    chosen = find_run(place.store, place.pipeline, options.run)
    reason = why_not_cached(place.store, chosen, options.node)
    if options.json:
        json.dump(asdict(reason), sys.stdout)
        sys.stdout.write("\n")
        return 0
    told = f"{plain(options.node)} in run {plain(chosen.name)}"
    if reason.execution.state == "CACHED":
        show(f"{told} was cached: it took what was there")
        return 0
    if reason.earlier is None:
        show(f"{told} ran: it had never ended well before")
        return 0
    show(f"{told} ran. The run before that differs least from it is {plain(reason.earlier.run)}:")
    rows = table("what", "name", "before", "now")
    for each in reason.differences:
        before, now = ("nothing" if value is None else plain(value, 80) for value in (each.before, each.now))
        rows.add_row(each.kind, plain(each.name), before, now)
    if reason.differences:
        show(rows)
    for artifact in reason.gone:
        show(f"its output {artifact.type} {artifact.id} is no longer there: {artifact.state.lower()}")
    if not reason.differences and not reason.gone:
        show("nothing: inputs and parameters are the same. The cache was off, or the node is one that is never cached")
    for node in reason.after:
        show(f"{plain(node)} ran, too, and made what was new: python runner.py why-not-cached {plain(node)}")
    return 0
