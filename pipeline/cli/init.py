"""`runner.py init`: writes a first config, and a schema, from the data, and prints what it decided and why."""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import sys
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from components.config_section import Task
from components.data.date_texts import Order
from components.errors import InputError
from components.files import write_atomically
from components.ingest.config import CsvConfig
from components.models.config import IMAGE_KINDS, LABELS_KINDS, RETRIEVAL_KINDS, Kind
from components.names import column_name
from pipeline.cli.local_paths import local_path
from pipeline.cli.output import suppress_native_stderr, table

if TYPE_CHECKING:
    # At run time these would import NumPy, Arrow and rich.
    from rich.table import Table

    from pipeline.authoring.scaffold import Draft

_MOST_COLUMNS = 40
"""Number of columns that the table of decisions shows."""
_TASKS = [task for task in typing.get_args(Task) if task != "retrieval"]
_KINDS = [kind for kind in typing.get_args(Kind) if kind not in (*IMAGE_KINDS, *LABELS_KINDS, *RETRIEVAL_KINDS)]
"""Those for a table and one label."""
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
    parser.add_argument("--task", choices=_TASKS, help="kind of prediction (default: derived from the label's values)")
    parser.add_argument(
        "--encoding",
        metavar="NAME",
        type=_checked("encoding"),
        help="encoding of text files, such as utf-8 or cp1252 (default: derived from their bytes)",
    )
    parser.add_argument(
        "--delimiter",
        metavar="CHARACTER",
        type=_checked("delimiter"),
        help="character between two fields, such as ';' or '\\t' (default: derived)",
    )
    parser.add_argument(
        "--decimal", choices=(".", ","), help="decimal sign of numbers in text files (default: derived)"
    )
    parser.add_argument(
        "--date-order",
        choices=[order for order in typing.get_args(Order) if order != "ymd"],
        help="order of day, month and year in dates such as 03/04/2024, if no value of the column shows it",
    )
    parser.add_argument(
        "--output",
        type=local_path,
        metavar="FILE",
        help="the config to write (default: configs/<name of the data>.yaml)",
    )
    parser.add_argument(
        "--schema",
        type=local_path,
        metavar="FILE",
        help="the schema to write (default: schema/<name of the config>.pbtxt)",
    )
    parser.add_argument("--kind", choices=_KINDS, help="kind of model (default: the best of some that are fitted)")
    parser.add_argument(
        "--budget",
        metavar="SECONDS",
        type=_seconds,
        default=60.0,
        help="time for fitting kinds of models; 0: the kind follows from the numbers of rows and ids (default: 60)",
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")


def run(options: argparse.Namespace) -> int:
    config, schema = _targets(options)
    # Imported late, so that --help does not wait for them.
    from pipeline.authoring.scaffold import draft
    from pipeline.authoring.scaffold.text_format import TextFormat

    fits = options.kind is None and options.budget > 0
    if fits:
        from pipeline.orchestration.local import processes

        # It imports TensorFlow and TFX for some seconds; meanwhile the table is read.
        processes.start_server()
    text_format = TextFormat(options.encoding, options.delimiter, options.decimal)
    drafted = draft(options.data, options.label, options.task, text_format, options.date_order)
    if options.kind:
        drafted = drafted.with_kind(options.kind, "chosen by --kind")
    with suppress_native_stderr():
        from pipeline.authoring.scaffold.schema import schema as schema_of

        schema_text = schema_of(drafted.table)
    _write(schema, schema_text)
    # Before the candidates are fitted, so that an interrupted command leaves a config.
    _write(config, drafted.config(str(schema)))
    code, compared = 0, []
    if fits:
        from pipeline.cli import kind_fitting

        try:
            fitting = kind_fitting.fit(drafted, config, options.budget)
            drafted, compared = fitting.draft, list(kind_fitting.tables(fitting))
            _write(config, drafted.config(str(schema)))
        except KeyboardInterrupt:
            sys.stdout.write("interrupted: the kind of model follows from the numbers of rows and ids\n")
            code = 128 + signal.SIGINT
        sys.stdout.write("\n")
    _print_decisions(drafted, compared)
    excluded = len(drafted.columns) - len(drafted.features)
    found = [f"leakage: {leak}; {_becomes(leak.column in drafted.features)}\n" for leak in drafted.leaks]
    sys.stdout.write(
        f"{config}: {drafted.table.rows:,} rows, {len(drafted.features)} features, "
        f"{excluded} {'column' if excluded == 1 else 'columns'} excluded, "
        f"label {drafted.task.label!r} ({drafted.task.task}), model {drafted.defaults.model['kind']}\n"
        f"{schema}: types and presence of the columns\n"
        f"{''.join(found)}"
        f"check both, then: python runner.py --local --config {config}\n"
    )
    return code


def _print_decisions(drafted: Draft, compared: Sequence[Table]) -> None:
    """Prints a table of the columns, a line for each choice about the whole table, and the table of the candidates."""
    from rich.console import Console

    from pipeline.authoring.scaffold import decisions

    columns = list(decisions.of_columns(drafted))
    grid = table("column", "kind", "features", "why")
    for column in grid.columns[:3]:
        column.no_wrap, column.max_width = True, 40
    for each in columns[:_MOST_COLUMNS]:
        grid.add_row(each.column, each.kind, each.features, each.why)
    facts = table("", "")
    facts.show_header = False
    for what, why in decisions.of_table(drafted):
        facts.add_row(what, why)
    # Texts of the data are no markup. On a pipe, the width is that of $COLUMNS.
    width = shutil.get_terminal_size((120, 24)).columns
    console = Console(markup=False, highlight=False, emoji=False, width=width)
    with console.capture() as printed:
        console.print(grid)
        if hidden := columns[_MOST_COLUMNS:]:
            features = sum(each.features != "-" for each in hidden)
            console.print(f"... and {len(hidden):,} more columns, {features:,} of them features; the config lists all")
        console.print()
        console.print(facts)
        for candidates in compared:
            console.print()
            console.print(candidates)
    # Rich fills the lines up with spaces.
    sys.stdout.write("\n".join(line.rstrip() for line in printed.get().splitlines()) + "\n\n")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds, or 0, received {text!r}")
    return seconds


def _checked(field: str) -> typing.Callable[[str], str]:
    """Returns the type of an option that is a field of CsvConfig."""

    def check(text: str) -> str:
        value = text.replace("\\t", "\t")
        try:
            CsvConfig.model_validate({field: value})
        except ValidationError as error:
            raise argparse.ArgumentTypeError(_EXPECTED[field].format(text)) from error
        return value

    return check


_EXPECTED = {
    "encoding": "expected an encoding that Python knows, such as utf-8 or cp1252, received {!r}",
    "delimiter": "expected one ASCII character other than a quote, such as ';' or '\\t', received {!r}",
}


def _becomes(feature: bool) -> str:
    return "remove it from features if it is not known when the model predicts" if feature else "excluded"


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text)
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
