"""`runner.py rollback`: back to the version that was stable before."""

from __future__ import annotations

import argparse
import sys

from components.pusher import state
from pipeline.commands.options import add_models, add_reason
from pipeline.registry import change
from pipeline.registry.place import of_options

HELP = "Go back to the version that was stable before, and end the canary; the version is verified first."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --to, --reason, and --models or --config."""
    parser.add_argument("--to", type=int, metavar="VERSION", help="the version to go back to, if not the one before")
    add_reason(parser)
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """Goes back, and says from what to what.

    Raises:
      InputError: nothing was stable before, or that version is not as it was pushed.
    """
    place = of_options(options)
    before = state.State() if place.is_remote else state.read(place.folder)
    new = change.rollback(place, options.to, options.reason)
    sys.stdout.write(f"{place.folder}: {change.told(new)}; it was {change.told(before)}\n")
    return 0
