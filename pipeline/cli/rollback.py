"""`runner.py rollback`: makes the previous stable version stable again."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pipeline.cli.options import add_models, add_reason, find_push_folder, load_config
from pipeline.registry import promotion

if TYPE_CHECKING:
    from components.pusher.serving_state import State
    from pipeline.authoring.config import Config

HELP = "Verify the previous stable version, make it stable again, and end the canary."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=int, metavar="VERSION", help="the version to restore (default: the previous one)")
    add_reason(parser)
    add_models(parser)


def _notify(config: Config, folder: str, before: int | None, now: State) -> None:
    from pipeline.cli import notifications

    change = now.history[-1]
    reason = f": {change.reason}" if change.reason else ""
    name = config.pipeline.name
    text = f"{name} was rolled back from version {before or 'none'} to {now.stable} by {change.by}{reason}"
    details = {"from": before, "to": now.stable, "by": change.by, "reason": change.reason, "folder": folder}
    notifications.send(config.notify, notifications.Notification("rollback", name, None, text, details))


def run(options: argparse.Namespace) -> int:
    push_folder = find_push_folder(options)
    before = push_folder.state()
    new = promotion.rollback(push_folder, options.to, options.reason)
    sys.stdout.write(f"{push_folder.path}: {promotion.describe(new)}; it was {promotion.describe(before)}\n")
    if options.models is None:
        config = load_config(options).config
        _notify(config, push_folder.path, before.stable, new)
    return 0
