"""`runner.py init`: writes a first config, and a schema, from the data."""

from __future__ import annotations

import argparse
import sys
import typing
from pathlib import Path

from components.config_section import Task
from components.errors import InputError
from components.names import column_name
from pipeline.cli.output import suppress_native_stderr

HELP = "Look at a table and write a config that runs on it: task, features, model, thresholds, and a schema."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", metavar="PATH", nargs="+", required=True, help="files, folders or patterns of CSV or Parquet files"
    )
    parser.add_argument(
        "--label",
        metavar="COLUMN",
        required=True,
        help="what to predict: a column, or an expression such as 'tips > 2'",
    )
    parser.add_argument(
        "--task", choices=typing.get_args(Task), help="kind of prediction (default: derived from the label's values)"
    )
    parser.add_argument(
        "--output", metavar="FILE", help="the config to write (default: configs/<name of the data>.yaml)"
    )
    parser.add_argument(
        "--schema", metavar="FILE", help="the schema to write (default: schema/<name of the config>.pbtxt)"
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")


def run(options: argparse.Namespace) -> int:
    config, schema = _targets(options)
    # Imported late, so that --help does not wait for them.
    from pipeline.authoring.scaffold import draft

    drafted = draft(options.data, options.label, options.task)
    with suppress_native_stderr():
        from pipeline.authoring.scaffold.schema import schema as schema_of

        schema_text = schema_of(drafted.table)
    _write(schema, schema_text)
    _write(config, drafted.config(str(schema)))
    excluded = len(drafted.columns) - len(drafted.features)
    found = [f"leakage: {leak}; {_becomes(leak.column in drafted.features)}\n" for leak in drafted.leaks]
    sys.stdout.write(
        f"{config}: {drafted.table.rows:,} rows, {len(drafted.features)} features, {excluded} columns excluded, "
        f"label {drafted.task.label!r} ({drafted.task.task}), model {drafted.defaults.model['kind']}\n"
        f"{schema}: types and presence of the columns\n"
        f"{''.join(found)}"
        f"check both, then: python runner.py --local --config {config}\n"
    )
    return 0


def _becomes(feature: bool) -> str:
    return "remove it from features if it is not known when the model predicts" if feature else "excluded"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", "give another with --output or --schema") from error


def _targets(options: argparse.Namespace) -> tuple[Path, Path]:
    """The paths of config and schema."""
    name = column_name(Path(options.data[0].rstrip("/*.")).stem.lower()) or "mine"
    config = Path(options.output or f"configs/{name}.yaml")
    schema = Path(options.schema or f"schema/{config.stem}.pbtxt")
    for path in (config, schema):
        if path.exists() and not options.force:
            raise InputError(f"{path} exists already", "give another with --output or --schema, or add --force")
    return config, schema
