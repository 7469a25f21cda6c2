"""`runner.py due`: whether the schedule's condition for a run holds now."""

from __future__ import annotations

import argparse

from pipeline.commands.options import add_config, load_config
from pipeline.commands.told import show

HELP = "Tell whether a scheduled run has something to do, by schedule.only_if. Exit code 0: yes, 3: no."
_NO = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the config."""
    add_config(parser)


def run(options: argparse.Namespace) -> int:
    """Tells.

    Raises:
      InputError: the config is not valid, or its data has no span.
      MachineError: the metadata store does not open.
    """
    from pipeline.due import due

    yes, why = due(load_config(options).config)
    show(f"{'due' if yes else 'not due'}: {why}")
    return 0 if yes else _NO
