"""The verb `count-features`. Heavy packages would be imported in `run`, so that --help stays fast."""

from __future__ import annotations

import argparse

from pipeline.authoring.config import load

HELP = "Print the number of transformed features of a config."
EXAMPLE = "python runner.py count-features --config configs/taxi.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("--config", required=True, help="a config")


def run(options: argparse.Namespace) -> int:
    """Print the number, and return the exit code."""
    print(len(load(options.config).config.features.declared))  # noqa: T201
    return 0
