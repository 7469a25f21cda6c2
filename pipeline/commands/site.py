"""`runner.py site`: a page on all runs, with links to their reports."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipeline.commands import options as shared
from pipeline.paths import shown

HELP = "Write a page on all runs: a table, the metrics over time, and links to the reports that are there."
_NAME = "index.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the store and --to."""
    shared.add_store(parser)
    parser.add_argument("--to", metavar="DIR", type=Path, help="where to put index.html (default: the runs' logs)")


def run(options: argparse.Namespace) -> int:
    """Writes it.

    Raises:
      InputError: there is no store yet.
      MachineError: the store does not open, or the page cannot be written.
    """
    from pipeline.metadata import history
    from pipeline.report import site, write

    place = shared.open_store(options)
    folder = options.to or place.logs
    # One more than the page shows, so that it can tell whether any are left out.
    rows = history.rows(place.store, place.logs, place.pipeline, site.MOST + 1)
    write.whole(folder / _NAME, site.rendered(rows, site.to_files(place.logs, folder)))
    sys.stdout.write(f"{shown(folder / _NAME)}\n")
    return 0
