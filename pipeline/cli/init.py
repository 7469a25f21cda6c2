"""`runner.py init`: write a first config and a schema from the data, and print each decision with its reason."""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import sys
import time
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from components.base.config_section import Task
from components.base.errors import InputError
from components.base.files import write_atomically
from components.base.names import column_name
from components.data.date_texts import Order
from components.ingest.text_config import CsvConfig
from components.models.config import ANOMALY_KIND, IMAGE_KINDS, LABELS_KINDS, RETRIEVAL_KINDS, Kind
from components.models.registry import MODELS
from pipeline.cli import usage
from pipeline.cli.local_paths import parse_local_path
from pipeline.cli.output import make_table, suppress_native_stderr

if TYPE_CHECKING:
    # At run time these would import NumPy, Arrow and rich.
    from rich.table import Table

    from pipeline.authoring.scaffold import Draft

_COLUMNS_SHOWN = 40
"""Maximum number of columns in the table of decisions."""
_TASKS = [task for task in typing.get_args(Task) if task not in ("multilabel", "survival", "retrieval", "anomaly")]
_KINDS = [
    kind for kind in typing.get_args(Kind) if kind not in (*IMAGE_KINDS, *LABELS_KINDS, *RETRIEVAL_KINDS, ANOMALY_KIND)
]
"""Kinds of models for tables with one label."""
HELP = "Look at a table and write a config that runs on it: task, features, model, thresholds, and a schema."
EXAMPLE = "python runner.py init --data data/customers.csv --label churned"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", metavar="PATH", nargs="+", required=True, help="files, folders or patterns of CSV or Parquet files"
    )
    add_table_arguments(parser)


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `write_config`, except the data."""
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
        type=_make_csv_type("encoding"),
        help="encoding of text files, such as utf-8 or cp1252 (default: derived from their bytes)",
    )
    parser.add_argument(
        "--delimiter",
        metavar="CHARACTER",
        type=_make_csv_type("delimiter"),
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
        "--keep",
        metavar="COLUMN",
        nargs="+",
        default=[],
        help="protected attributes of persons, such as age or gender, that become features (default: none)",
    )
    parser.add_argument(
        "--config",
        type=parse_local_path,
        metavar="FILE",
        help="the config to write (default: configs/<name of the data>.yaml)",
    )
    parser.add_argument(
        "--schema",
        type=parse_local_path,
        metavar="FILE",
        help="the schema to write (default: schema/<name of the config>.pbtxt)",
    )
    parser.add_argument(
        "--kind",
        choices=[*_KINDS, *MODELS.added],
        help="kind of model (default: the best of several candidates, which are fitted)",
    )
    parser.add_argument(
        "--budget",
        metavar="SECONDS",
        type=_parse_seconds,
        default=60.0,
        help="time of the command, such as 90 or 2m, most of it for fitting candidates; 0: choose the kind by the "
        "numbers of rows and ids (default: 60)",
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")


def run(options: argparse.Namespace) -> int:
    code, config = write_config(options)
    sys.stdout.write(f"check both, then: {usage.name_program()} --local --config {config}\n")
    return code


def write_config(options: argparse.Namespace) -> tuple[int, Path]:
    """Write a config and a schema for the data, and print each decision with its reason.

    Args:
      options: The options of `add_table_arguments`, and `data`.

    Returns:
      The exit code, which is not 0 if the user interrupted the fitting of candidates; and the path of the config.

    Raises:
      InputError: The data cannot be read, the label does not fit it, or a file exists already.
    """
    started = time.monotonic()
    config, schema = _find_output_paths(options)
    # Imported late, so that --help does not wait for them.
    from pipeline.authoring.scaffold import draft
    from pipeline.authoring.scaffold.text_format import TextFormat

    fits_candidates = options.kind is None and options.budget > 0
    if fits_candidates:
        from pipeline.orchestration.local import processes

        # The fork server imports TensorFlow and TFX, which takes seconds. Meanwhile this process reads the table.
        processes.start_server()
    text_format = TextFormat(options.encoding, options.delimiter, options.decimal)
    proposal = draft(options.data, options.label, options.task, text_format, options.date_order, options.keep)
    if options.kind:
        proposal = proposal.with_kind(options.kind, "chosen by --kind")
    with suppress_native_stderr():
        from pipeline.authoring.scaffold.schema import schema as schema_of

        schema_text = schema_of(proposal.table)
    _write(schema, schema_text)
    # Write the config before the candidates are fitted, so that it exists even if the user interrupts the command.
    _write(config, proposal.config(str(schema)))
    code, candidate_tables = 0, []
    if fits_candidates:
        from pipeline.cli import kind_fitting

        try:
            fitting = kind_fitting.fit(proposal, config, options.budget, started + options.budget)
            proposal, candidate_tables = fitting.draft, list(kind_fitting.make_tables(fitting))
            _write(config, proposal.config(str(schema)))
        except KeyboardInterrupt:
            sys.stdout.write("interrupted: the kind of model follows from the numbers of rows and ids\n")
            code = 128 + signal.SIGINT
        sys.stdout.write("\n")
    _print_decisions(proposal, candidate_tables)
    excluded = len(proposal.columns) - len(proposal.features)
    leaks = [f"leakage: {leak}; {_describe_remedy(leak.column in proposal.features)}\n" for leak in proposal.leaks]
    sys.stdout.write(
        f"{config}: {proposal.table.rows:,} rows, {len(proposal.features)} features, "
        f"{excluded} {'column' if excluded == 1 else 'columns'} excluded, "
        f"label {proposal.task.label!r} ({proposal.task.task}), model {proposal.defaults.model['kind']}\n"
        f"{schema}: types and presence of the columns\n"
        f"{''.join(leaks)}"
    )
    return code, config


def _print_decisions(proposal: Draft, candidate_tables: Sequence[Table]) -> None:
    """Print the decisions on the columns, the decisions on the whole table, and the fitted candidates.

    Args:
      proposal: The draft of the config.
      candidate_tables: The table of the candidates, or nothing if none was fitted.
    """
    from rich.console import Console

    from pipeline.authoring.scaffold import decisions

    columns = list(decisions.list_column_decisions(proposal))
    grid = make_table("column", "kind", "features", "why")
    for column in grid.columns[:3]:
        column.no_wrap, column.max_width = True, 40
    for decision in columns[:_COLUMNS_SHOWN]:
        grid.add_row(decision.column, decision.kind, decision.features, decision.why)
    facts = make_table("", "")
    facts.show_header = False
    for subject, reason in decisions.list_table_decisions(proposal):
        facts.add_row(subject, reason)
    # Column names may contain square brackets, which rich must not interpret as markup. Without a terminal, $COLUMNS
    # sets the width.
    width = shutil.get_terminal_size((120, 24)).columns
    console = Console(markup=False, highlight=False, emoji=False, width=width)
    with console.capture() as printed:
        console.print(grid)
        if hidden := columns[_COLUMNS_SHOWN:]:
            features = sum(decision.features != "-" for decision in hidden)
            console.print(f"... and {len(hidden):,} more columns, {features:,} of them features; the config lists all")
        console.print()
        console.print(facts)
        for candidates in candidate_tables:
            console.print()
            console.print(candidates)
    # Rich pads each line with spaces to the full width.
    sys.stdout.write("\n".join(line.rstrip() for line in printed.get().splitlines()) + "\n\n")


def _parse_seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+) ?(s|m|min|h)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, at least 0, or 90s or 2m, received {text!r}")
    return float(match[1]) * {"m": 60, "min": 60, "h": 3600}.get(match[2], 1)


def _make_csv_type(field: str) -> typing.Callable[[str], str]:
    """Return the argparse type of an option that sets a field of CsvConfig and is validated as that field."""

    def parse(text: str) -> str:
        value = text.replace("\\t", "\t")
        try:
            CsvConfig.model_validate({field: value})
        except ValidationError as error:
            raise argparse.ArgumentTypeError(_EXPECTED[field].format(text)) from error
        return value

    return parse


_EXPECTED = {
    "encoding": "expected an encoding that Python knows, such as utf-8 or cp1252, received {!r}",
    "delimiter": "expected one ASCII character other than a quote, such as ';' or '\\t', received {!r}",
}


def _describe_remedy(is_feature: bool) -> str:
    return "remove it from features if it is not known when the model predicts" if is_feature else "excluded"


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}", "name another file with --config or --schema"
        ) from error


def _find_output_paths(options: argparse.Namespace) -> tuple[Path, Path]:
    """Return the paths of the config and the schema to write.

    Raises:
      InputError: One of the files exists, and --force is not set.
    """
    name = column_name(Path(options.data[0].rstrip("/*.")).stem.lower()) or "mine"
    config = Path(options.config or f"configs/{name}.yaml")
    schema = Path(options.schema or f"schema/{config.stem}.pbtxt")
    for path in (config, schema):
        if path.exists() and not options.force:
            raise InputError(f"{path} exists already", "name another file with --config or --schema, or add --force")
    return config, schema
