"""`runner.py runs site`: write a page with the list of runs and links to their reports."""

from __future__ import annotations

import argparse
import sys

from pipeline.cli import options as shared
from pipeline.cli.local_paths import parse_local_file
from pipeline.core.text import display_path

HELP = "Write a page with the list of runs: a table, the metrics over time, and links to their reports."
EXAMPLE = "python runner.py runs site --into site"
_NAME = "index.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_store(parser)
    parser.add_argument(
        "--into", metavar="DIR", type=parse_local_file, help="folder for index.html (default: the runs' logs)"
    )


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection import run_history
    from pipeline.inspection.report import runs_page, write

    opened = shared.open_store(options)
    folder = options.into or opened.logs
    # Request one run more than the page lists, so that the page can say that there are more.
    runs = run_history.list_runs(opened.store, opened.logs, opened.pipeline, runs_page.MOST + 1)
    write.write_text(folder / _NAME, runs_page.render(runs, runs_page.file_links(opened.logs, folder)))
    sys.stdout.write(f"{display_path(folder / _NAME)}\n")
    return 0
