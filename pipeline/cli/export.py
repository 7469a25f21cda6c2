"""`runner.py export`: the content of the metadata store as text."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from components.errors import MachineError
from components.files import open_atomically
from pipeline.cli import options as shared

HELP = "Write runs, executions and artifacts as JSON Lines, or as OpenLineage events."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_store(parser)
    parser.add_argument(
        "--format", choices=("jsonl", "openlineage"), default="jsonl", help="format of the lines (default: jsonl)"
    )
    parser.add_argument("--to", metavar="FILE", help="the file, replaced atomically (default: the standard output)")


def run(options: argparse.Namespace) -> int:
    from pipeline.inspection import export

    opened = shared.open_store(options)
    records = {"jsonl": export.lines, "openlineage": export.openlineage}[options.format](opened.store, opened.pipeline)
    texts = (json.dumps(record) + "\n" for record in records)
    if options.to is None:
        sys.stdout.writelines(texts)
        return 0
    path = Path(options.to)
    try:
        # Raises for a missing folder, which may be a typing error: it is not created.
        path.parent.stat()
        with open_atomically(path) as file:
            count = sum(1 for text in texts if file.write(text.encode()))
    except OSError as error:
        raise MachineError(f"--to: {path} cannot be written: {error.strerror}", "name another file") from error
    sys.stdout.write(f"{path}: {count:,} lines\n")
    return 0
