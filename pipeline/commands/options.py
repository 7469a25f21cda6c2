"""Options that several verbs share: which config, and what is laid over it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.config import Loaded

DEFAULT_CONFIG = "configs/taxi.yaml"


def add_config(parser: argparse.ArgumentParser) -> None:
    """Adds --config, --set and --output."""
    parser.add_argument(
        "--config", metavar="FILE", default=DEFAULT_CONFIG, help=f"the pipeline (default: {DEFAULT_CONFIG})"
    )
    parser.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="set a field, such as training.steps=200; repeatable",
    )
    parser.add_argument("--output", metavar="DIR", help="folder for everything that is made (default: out)")


def add_models(parser: argparse.ArgumentParser) -> None:
    """Adds --models, and --config, --set and --output for who gives none."""
    add_config(parser)
    parser.add_argument(
        "--models", metavar="FOLDER", help="the push folder; then no config is read (default: that of the config)"
    )


def add_reason(parser: argparse.ArgumentParser) -> None:
    """Adds --reason."""
    parser.add_argument("--reason", metavar="TEXT", help="why; kept in the history")


def load_config(options: argparse.Namespace, *assignments: str) -> Loaded:
    """Loads the config that the options name.

    Args:
      options: parsed options of `add_config`.
      assignments: further `field=value` of the verb's own options.
    """
    # Imported late, so that --help does not wait for pydantic.
    from pipeline.config import load

    output = () if options.output is None else (f"runtime.output={_quoted(options.output)}",)
    return load(options.config, [*options.set, *output, *assignments])


def _quoted(text: str) -> str:
    """A text that YAML reads as just that text."""
    return "'" + text.replace("'", "''") + "'"
