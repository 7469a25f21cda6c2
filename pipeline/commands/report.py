"""`runner.py report [RUN]`: a page that tells all of a run, and a model card."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipeline.commands import options as shared
from pipeline.commands.told import LATEST, find_run, only_ours
from pipeline.paths import shown

HELP = (
    "Write a page of HTML that tells all of a run: data, features, training, evaluation, lineage, config. Every run "
    "writes it at its end; this writes it anew."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the run, the store, --to and --model-card."""
    parser.add_argument("run", nargs="?", default=LATEST, help="its id, or how that begins (default: the latest)")
    shared.add_store(parser)
    parser.add_argument("--to", metavar="FILE", type=Path, help="the page (default: report.html in the run's logs)")
    parser.add_argument(
        "--model-card", action="store_true", help="write model-card.md and model-card.json beside it as well"
    )


def run(options: argparse.Namespace) -> int:
    """Writes it.

    Raises:
      InputError: there is no such run.
      MachineError: the store does not open, or the page cannot be written.
    """
    from pipeline.report import write

    place = shared.open_store(options)
    wanted = find_run(place.store, place.pipeline, options.run)
    file = options.to or write.place(place.logs, wanted.name)
    with only_ours():
        files = write.report(place.store, place.logs, wanted, file, options.model_card)
    for written in files:
        sys.stdout.write(f"{shown(written)}\n")
    return 0
