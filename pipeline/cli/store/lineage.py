"""`runner.py store lineage ARTIFACT|VERSION`: show the ancestors and descendants of an artifact."""

from __future__ import annotations

import argparse
import sys

from pipeline.cli import options as shared
from pipeline.cli.output import show

HELP = "Show what an artifact or a pushed version was made from (data, schema, code, config), and what uses it."
EXAMPLE = "python runner.py store lineage version:3 --format mermaid"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="ARTIFACT|VERSION",
        help="number of a pushed version or an artifact (version:3 or artifact:3 if both exist), or a folder",
    )
    shared.add_store(parser)
    parser.add_argument(
        "--format", choices=("tree", "json", "dot", "mermaid"), default="tree", help="output format (default: tree)"
    )


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection import lineage

    selection = shared.open_store(options)
    graph = lineage.trace(selection.store, lineage.find(selection.store, options.what))
    if options.format == "tree":
        show(*lineage.trees(graph))
    else:
        write = {"json": lineage.to_json, "dot": lineage.to_dot, "mermaid": lineage.to_mermaid}[options.format]
        sys.stdout.write(write(graph))
    return 0
