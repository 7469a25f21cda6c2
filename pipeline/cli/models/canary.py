"""`runner.py models canary`: send a share of the traffic to a version, or end the canary."""

from __future__ import annotations

import argparse
import sys

from components.base.errors import InputError
from pipeline.cli.options import add_models, add_reason, find_push_folder
from pipeline.registry import promotion

HELP = "Verify a version and send it a share of the traffic, or stop the canary."
EXAMPLE = "python runner.py models canary 3 --percent 10"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", type=int, nargs="?", metavar="VERSION", help="its number")
    parser.add_argument(
        "--percent", type=_parse_percent, metavar="P", help="its share, from 0 to 100, with up to two decimals"
    )
    parser.add_argument("--stop", action="store_true", help="end the canary: all traffic to the stable version")
    add_reason(parser)
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    if options.stop == (options.version is not None or options.percent is not None):
        raise InputError("expected VERSION --percent P, or only --stop", "see python runner.py models canary --help")
    if not options.stop and None in (options.version, options.percent):
        raise InputError("expected both VERSION and --percent P", "see python runner.py models canary --help")
    push_folder = find_push_folder(options)
    if options.stop:
        new = promotion.stop(push_folder, options.reason)
    else:
        new = promotion.set_canary(push_folder, options.version, options.percent, options.reason)
    sys.stdout.write(f"{push_folder.path}: {promotion.describe(new)}\n")
    return 0


def _parse_percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = 0.0
    if not 0 < percent < 100 or round(percent, 2) != percent:
        raise argparse.ArgumentTypeError(
            f"expected a share between 0 and 100 with at most two decimals, received {text!r}"
        )
    return percent
