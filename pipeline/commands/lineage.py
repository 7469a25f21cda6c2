"""`runner.py lineage ARTIFACT|VERSION`: what something was made from, and what was made of it."""

from __future__ import annotations

import argparse
import sys

from pipeline.commands import options as shared
from pipeline.commands.told import show

HELP = "Show what an artifact or a pushed version was made from (data, schema, code, config), and what was made of it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to look at, the store and --format."""
    parser.add_argument(
        "what",
        metavar="ARTIFACT|VERSION",
        help="number of a pushed version or an artifact (version:3 or artifact:3, where there are both), or a folder",
    )
    shared.add_store(parser)
    parser.add_argument(
        "--format", choices=("tree", "json", "dot", "mermaid"), default="tree", help="how to write it (default: tree)"
    )


def run(options: argparse.Namespace) -> int:
    """Shows it.

    Raises:
      InputError: nothing is called so.
      MachineError: the store does not open.
    """
    from pipeline.metadata import drawing, lineage

    place = shared.open_store(options)
    found = lineage.trace(place.store, lineage.find(place.store, options.what))
    if options.format == "tree":
        show(*drawing.trees(found))
    else:
        written = {"json": drawing.json_of, "dot": drawing.dot, "mermaid": drawing.mermaid}[options.format](found)
        sys.stdout.write(written)
    return 0
