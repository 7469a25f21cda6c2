"""`runner.py due`: whether the schedule's condition for a run holds now."""

from __future__ import annotations

import argparse
from pathlib import Path

from components.errors import InputError
from pipeline.commands.options import add_config, load_config
from pipeline.commands.told import show

HELP = "Tell whether a scheduled run has something to do, by schedule.only_if. Exit code 0: yes, 3: no."
_NO = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the config and --to."""
    add_config(parser)
    parser.add_argument(
        "--to", metavar="FILE", type=Path, help="write yes or no into this file, and end with 0 either way"
    )


def run(options: argparse.Namespace) -> int:
    """Tells.

    Raises:
      InputError: the config is not valid, its data has no span, or the file cannot be written.
      MachineError: the metadata store does not open.
    """
    from pipeline.due import due

    yes, why = due(load_config(options).config)
    show(f"{'due' if yes else 'not due'}: {why}")
    if options.to is None:
        return 0 if yes else _NO
    try:
        options.to.parent.mkdir(parents=True, exist_ok=True)
        options.to.write_text("yes" if yes else "no", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{options.to} cannot be written: {error.strerror}", "name another file with --to") from error
    return 0
