"""`runner.py export`: the whole metadata store as text."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from components.errors import MachineError
from pipeline.commands import options as shared

HELP = "Write runs, executions and artifacts as JSON Lines, or as OpenLineage events."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the store, --format and --to."""
    shared.add_store(parser)
    parser.add_argument(
        "--format", choices=("jsonl", "openlineage"), default="jsonl", help="what the lines are (default: jsonl)"
    )
    parser.add_argument("--to", metavar="FILE", help="where to (default: to the screen); it is written whole, or not")


def run(options: argparse.Namespace) -> int:
    """Writes.

    Raises:
      InputError: there is no store yet.
      MachineError: the store does not open, or the file cannot be written.
    """
    from pipeline.metadata import dump

    place = shared.open_store(options)
    made = {"jsonl": dump.lines, "openlineage": dump.openlineage}[options.format](place.store, place.pipeline)
    texts = (json.dumps(line) + "\n" for line in made)
    if options.to is None:
        sys.stdout.writelines(texts)
        return 0
    target = Path(options.to)
    beside = target.with_name(f".{target.name}.new")
    try:
        with beside.open("w", encoding="utf-8") as file:
            count = sum(1 for text in texts if file.write(text))
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise MachineError(f"--to: {target} cannot be written: {error.strerror}", "name another file") from error
    sys.stdout.write(f"{target}: {count:,} lines\n")
    return 0
