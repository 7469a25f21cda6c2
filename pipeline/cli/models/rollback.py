"""`runner.py models rollback`: make the previous stable version stable again."""

from __future__ import annotations

import argparse
import sys

from pipeline.cli.options import add_models, add_reason, find_push_folder, get_push_folder, load_config
from pipeline.registry import promotion

HELP = "Verify the previous stable version, make it stable again, and end the canary."
EXAMPLE = "python runner.py models rollback --reason 'slow responses'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "version",
        type=int,
        nargs="?",
        metavar="VERSION",
        help="its number (default: the version that was stable before)",
    )
    add_reason(parser)
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    config = load_config(options).config if options.models is None else None
    push_folder = find_push_folder(options) if config is None else get_push_folder(config)
    before = push_folder.state()
    new = promotion.rollback(push_folder, options.version, options.reason)
    sys.stdout.write(f"{push_folder.path}: {promotion.describe(new)}; it was {promotion.describe(before)}\n")
    if config is not None:
        from pipeline.cli import notifications

        change = new.history[-1]
        notifications.send_rollback(
            config.notify, config.pipeline.name, push_folder.path, change, before.stable, new.stable
        )
    return 0
