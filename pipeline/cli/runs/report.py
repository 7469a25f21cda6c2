"""`runner.py runs report [RUN]`: write the HTML report of a run and, on request, its model card."""

from __future__ import annotations

import argparse
import sys

from pipeline.cli import options as shared
from pipeline.cli.local_paths import parse_local_file
from pipeline.cli.output import suppress_native_stderr
from pipeline.core.text import display_path

HELP = (
    "Write the HTML report of a run: data, features, training, evaluation, lineage, config. Every run writes its "
    "report when it ends; this command writes it again."
)
EXAMPLE = "python runner.py runs report latest --model-card"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_run(parser)
    parser.add_argument(
        "--into", metavar="FILE", type=parse_local_file, help="the page (default: report.html in the run's logs)"
    )
    parser.add_argument(
        "--model-card", action="store_true", help="also write model-card.md and model-card.json into its folder"
    )


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection.report import write

    opened, [selected] = shared.open_runs(options, options.run)
    file = options.into or write.report_path(opened.logs, selected.name)
    with suppress_native_stderr():
        files = write.write_report(opened.store, opened.logs, selected, file, options.model_card)
    for path in files:
        sys.stdout.write(f"{display_path(path)}\n")
    return 0
