"""`runner.py store export`: write the content of the metadata store as text, or its runs to MLflow."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

from components.base.errors import InputError, MachineError
from components.base.files import open_atomically
from pipeline.cli import options as shared
from pipeline.cli.output import suppress_native_stderr

HELP = "Write runs, executions and artifacts as JSON Lines or OpenLineage events, or runs to MLflow."
EXAMPLE = "python runner.py store export --format openlineage --into events.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_store(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "openlineage", "mlflow"),
        default="jsonl",
        help="format of the lines, or mlflow (default: jsonl)",
    )
    parser.add_argument(
        "--into",
        metavar="FILE",
        help="the file, replaced atomically (default: the standard output); for mlflow a tracking URI or a folder",
    )


def run(options: argparse.Namespace) -> int:
    if options.format == "mlflow":
        return _export_to_mlflow(options)
    from pipeline.inspection import export

    opened = shared.open_store(options)
    records = {"jsonl": export.lines, "openlineage": export.openlineage}[options.format](opened.store, opened.pipeline)
    texts = (json.dumps(record) + "\n" for record in records)
    if options.into is None:
        sys.stdout.writelines(texts)
        return 0
    path = Path(options.into)
    try:
        # Raise for a missing folder instead of creating it: the path may be mistyped.
        path.parent.stat()
        with open_atomically(path) as file:
            count = sum(1 for text in texts if file.write(text.encode()))
    except OSError as error:
        raise MachineError(f"--into: {path} cannot be written: {error.strerror}", "name another file") from error
    sys.stdout.write(f"{path}: {count:,} lines\n")
    return 0


def _export_to_mlflow(options: argparse.Namespace) -> int:
    if options.into is None:
        raise InputError(
            "--format mlflow: expected --into, received none", "name MLflow's tracking URI, or a folder such as mlruns"
        )
    if importlib.util.find_spec("mlflow") is None:
        raise InputError(
            "--format mlflow: expected the package mlflow-skinny, which is not installed",
            "install the extra mlflow: .venv/bin/python -m pip install -r requirements-mlflow.txt",
        )
    opened = shared.open_store(options)
    with suppress_native_stderr():
        from pipeline.inspection import mlflow_export

        written_count, present_count = mlflow_export.export(opened.store, opened.logs, opened.pipeline, options.into)
    sys.stdout.write(f"{options.into}: {written_count:,} runs written, {present_count:,} were there\n")
    return 0
