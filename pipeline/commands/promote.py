"""`runner.py promote`: a version gets all of the traffic, or none."""

from __future__ import annotations

import argparse
import sys

from pipeline.commands.options import add_models, add_reason
from pipeline.registry import change
from pipeline.registry.place import of_options

HELP = "Make a version the stable one, which gets all of the traffic but a canary's; it is verified first."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the version, --stage, --reason, and --models or --config."""
    parser.add_argument("version", type=int, metavar="VERSION", help="its number")
    parser.add_argument(
        "--stage", choices=("stable", "none"), default="stable", help="none takes it out of the traffic"
    )
    add_reason(parser)
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """Changes the stage, and says what serves now.

    Raises:
      InputError: the version is not there, or not as it was pushed.
    """
    place = of_options(options)
    act = change.promote if options.stage == "stable" else change.unstage
    new = act(place, options.version, options.reason)
    sys.stdout.write(f"{place.folder}: {change.told(new)}\n")
    return 0
