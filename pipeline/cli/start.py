"""`runner.py start`: from a table and a label to a pushed model and its report, in one command."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from components.base.errors import GATE
from pipeline.cli import init, usage
from pipeline.cli import run as run_verb
from pipeline.cli.local_paths import parse_local_path

HELP = "Look at a table, write a config and a schema, run the pipeline on them, and print what to do next."
EXAMPLE = "python runner.py start data/customers.csv --label churned"
_AFTER_PUSH = (
    ("explain {}", "which columns the predictions depend on"),
    ("predict {} --data NEW_ROWS.csv --into PREDICTIONS", "predict the rows of a file, into a new folder"),
    ("serve {}", "serve the model over REST and gRPC"),
)
# A gate may reject the data, before there is a model that could be explained.
_AFTER_REJECTION = (
    ("runs show latest {}", "the nodes of the run, and the reason"),
    ("--local {}", "run again after a change of the config"),
)
_AFTER_FAILURE = (("--local {}", "run again after the remedy; only what has changed runs"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", nargs="+", help="files, folders or patterns of CSV or Parquet files")
    init.add_table_arguments(parser)
    parser.add_argument("--output", type=parse_local_path, metavar="DIR", help="folder of the runs (default: out)")
    parser.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="set a field for this run, such as training.steps=200; repeatable",
    )


def run(options: argparse.Namespace) -> int:
    code, config = init.write_config(options)
    if code:
        return code
    sys.stdout.write("\n")
    sys.stdout.flush()
    words = ["--config", str(config), *(["--output", str(options.output)] if options.output else [])]
    settings = [word for assignment in options.set for word in ("--set", assignment)]
    code = run_verb.run(usage.make_parser("run", run_verb).parse_args([*words, *settings]))
    sys.stdout.write("".join(f"{line}\n" for line in _list_next_commands(code, config, words)))
    return code


def _list_next_commands(code: int, config: Path, words: Sequence[str]) -> list[str]:
    """Return lines with the commands that fit the end of the run.

    Args:
      code: Exit code of the run.
      config: The config that was written.
      words: Options that select the config and the folder of the runs.
    """
    commands = {0: _AFTER_PUSH, GATE: _AFTER_REJECTION}.get(code, _AFTER_FAILURE)
    selection = shlex.join(words)
    lines = [(f"{usage.name_program()} {command.format(selection)}", text) for command, text in commands]
    width = max(len(command) for command, _ in lines)
    return [
        f"next; the config {config} is yours to edit:",
        *(f"  {command:{width}}  # {text}" for command, text in lines),
    ]
