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
    """Adds the options of the verb."""
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
        "--task", choices=typing.get_args(Task), help="what kind of prediction (default: found from the label's values)"
    )
    parser.add_argument(
        "--output", metavar="FILE", help="the config to write (default: configs/<name of the data>.yaml)"
    )
    parser.add_argument(
        "--schema", metavar="FILE", help="the schema to write (default: schema/<name of the config>.pbtxt)"
    )
    parser.add_argument("--force", action="store_true", help="write over files that are there")


def run(options: argparse.Namespace) -> int:
    """Writes both files; tells what it chose.

    Raises:
      InputError: the data is no table, nothing can be learned of the label, or a file is there already.
    """
    config, schema = _targets(options)
    # Imported late, so that --help does not wait for them.
    from pipeline.authoring.scaffold import draft

    found = draft(options.data, options.label, options.task)
    with suppress_native_stderr():
        from pipeline.authoring.scaffold.schema import schema as schema_of

        rows_look = schema_of(found.table)
    _write(schema, rows_look)
    _write(config, found.config(str(schema)))
    left_out = len(found.columns) - len(found.features)
    sys.stdout.write(
        f"{config}: {found.table.rows:,} rows, {len(found.features)} features, {left_out} columns left out, "
        f"label {found.task.label!r} ({found.task.task}), model {found.defaults.model['kind']}\n"
        f"{schema}: what the rows have to look like\n"
        f"look them over, then: python runner.py --local --config {config}\n"
    )
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", "give another with --output or --schema") from error


def _targets(options: argparse.Namespace) -> tuple[Path, Path]:
    """Where config and schema go."""
    name = column_name(Path(options.data[0].rstrip("/*.")).stem.lower()) or "mine"
    config = Path(options.output or f"configs/{name}.yaml")
    schema = Path(options.schema or f"schema/{config.stem}.pbtxt")
    for path in (config, schema):
        if path.exists() and not options.force:
            raise InputError(f"{path} is there already", "give another with --output or --schema, or say --force")
    return config, schema
