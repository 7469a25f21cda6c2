"""`runner.py models promote`: send all traffic to a version, or none."""

from __future__ import annotations

import argparse
import sys

from pipeline.cli.options import add_models, add_reason, find_push_folder
from pipeline.registry import promotion

HELP = "Verify a version and make it the stable one, which gets all traffic except a canary's."
EXAMPLE = "python runner.py models promote 3 --reason 'better recall'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", type=int, metavar="VERSION", help="its number")
    parser.add_argument(
        "--stage", choices=("stable", "none"), default="stable", help="none: no traffic for this version"
    )
    add_reason(parser)
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    push_folder = find_push_folder(options)
    change_stage = promotion.promote if options.stage == "stable" else promotion.unstage
    new = change_stage(push_folder, options.version, options.reason)
    sys.stdout.write(f"{push_folder.path}: {promotion.describe(new)}\n")
    return 0
