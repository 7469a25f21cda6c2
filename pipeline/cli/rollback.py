"""`runner.py rollback`: make the previous stable version stable again."""

from __future__ import annotations

import argparse
import sys

from pipeline.cli.options import add_models, add_reason, find_push_folder, load_config
from pipeline.registry import promotion

HELP = "Verify the previous stable version, make it stable again, and end the canary."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=int, metavar="VERSION", help="the version to restore (default: the previous one)")
    add_reason(parser)
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    push_folder = find_push_folder(options)
    before = push_folder.state()
    new = promotion.rollback(push_folder, options.to, options.reason)
    sys.stdout.write(f"{push_folder.path}: {promotion.describe(new)}; it was {promotion.describe(before)}\n")
    if options.models is None:
        from pipeline.cli import notifications

        config = load_config(options).config
        change = new.history[-1]
        notifications.send_rollback(
            config.notify, config.pipeline.name, push_folder.path, change, before.stable, new.stable
        )
    return 0
