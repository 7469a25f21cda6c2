"""`runner.py canary`: a version gets a share of the traffic, or no longer."""

from __future__ import annotations

import argparse
import sys

from components.errors import InputError
from pipeline.commands.options import add_models, add_reason
from pipeline.registry import change
from pipeline.registry.place import of_options

HELP = "Give a version a share of the traffic beside the stable one, or end that; it is verified first."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the version, --percent, --stop, --reason, and --models or --config."""
    parser.add_argument("version", type=int, nargs="?", metavar="VERSION", help="its number")
    parser.add_argument("--percent", type=_percent, metavar="P", help="its share: between 0 and 100, to the hundredth")
    parser.add_argument("--stop", action="store_true", help="end the canary: all of the traffic to the stable version")
    add_reason(parser)
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """Starts, changes or stops the canary, and says what serves now.

    Raises:
      InputError: the version is not there, or not as it was pushed; or there is nothing to stop.
    """
    if options.stop == (options.version is not None or options.percent is not None):
        raise InputError("expected VERSION --percent P, or --stop alone", "see python runner.py canary --help")
    if not options.stop and None in (options.version, options.percent):
        raise InputError("expected both VERSION and --percent P", "see python runner.py canary --help")
    place = of_options(options)
    if options.stop:
        new = change.stop(place, options.reason)
    else:
        new = change.canary(place, options.version, options.percent, options.reason)
    sys.stdout.write(f"{place.folder}: {change.told(new)}\n")
    return 0


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = 0.0
    if not 0 < percent < 100 or round(percent, 2) != percent:
        raise argparse.ArgumentTypeError(f"expected a share between 0 and 100, to the hundredth, received {text!r}")
    return percent
