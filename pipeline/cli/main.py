"""Entry point of the command line: run the module of a command (a verb), and convert its errors to an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from components.base.errors import INPUT, MachineError, PipelineError
from components.base.names import did_you_mean
from pipeline.core import addons
from pipeline.core.text import print_error

VERBS = {
    "run": "run the pipeline; `--local` alone means `run --local`",
    "compile": "write the compiled pipeline, for `run-node`",
    "run-node": "run one node of a compiled pipeline, as orchestrators do",
    "init": "write a first config and a schema from the data",
    "validate": "check a config, and its columns against the data",
    "plan": "show the nodes of a run, their inputs, the engine, and what is cached",
    "serve": "serve the pushed model on this machine",
    "predict": "predict the rows of files with a pushed version, or with any SavedModel",
    "monitor": "compare served requests with the rows that the version was trained on",
    "runs": "list the runs: state, duration, span, verdict, metrics, pushed version",
    "show": "show a run, node by node",
    "artifacts": "list the artifacts of the runs",
    "lineage": "show what an artifact was made from, and what was made from it",
    "compare": "show the differences of two runs: config, schema, data, metrics, model",
    "diff-data": "show the differences of the data of two runs, column by column",
    "explain": "print what a model's predictions depend on, in all rows or in a single one",
    "report": "write a page on a run, and a model card",
    "site": "write a page on all runs, with links to their reports",
    "serve-ui": "serve the same pages on this machine, also for unfinished runs",
    "why-not-cached": "explain why a node ran instead of reusing cached outputs",
    "export": "write the whole metadata store as JSON Lines or OpenLineage events, or runs to MLflow",
    "export-examples": "write examples as TFRecords, for stock TFX",
    "gc": "list artifacts that no kept run and no pushed version needs, and remove them",
    "worker-pool": "run Beam's Python workers for Flink, Spark or another engine on this machine",
    "due": "print whether a scheduled run is due",
    "metadata": "migrate a metadata store of an older release",
    "models": "list the pushed versions and their stages",
    "promote": "make a version the stable one",
    "canary": "give a version a share of the traffic",
    "rollout": "give a version growing shares of the traffic while it is no worse than the stable one",
    "rollback": "return to the version that was stable before",
    "verify": "verify pushed versions against their manifests",
    "doctor": "check this machine: what is wrong, and how to fix it",
    "schema": "write the JSON Schema of the config, for editors",
}
"""Verb → what it does. Each verb is a module of that name; only the module of the verb in use is imported.

A module defines `HELP`, the description that --help prints; `add_arguments(parser)`, which adds the options; and
`run(options)`, which returns the exit code or raises a PipelineError."""

_EPILOG = """\
exit codes: 0 done; 1 a fault of this program or the machine; 2 the config, the data or your code; 3 rejected by a gate;
            130 interrupted

  python runner.py --local                                        the taxi example, from rows to a pushed model
  python runner.py init --data FILES --label COLUMN               a first config for your own data
  python runner.py --local --config configs/mine.yaml             your own
  python runner.py --local --set training.steps=200               any field, as often as you like
  python runner.py --local --resume latest                        continue where a run failed
  python runner.py VERB --help                                    the options of a verb
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      arguments: The command line without the program's name. If None, the arguments of this process.

    Returns:
      The exit code.
    """
    open_streams()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if not argv or argv[0] in ("-h", "--help"):
        _make_overview_parser().print_help()
        return 0 if argv else INPUT
    verb, options = ("run", argv) if argv[0].startswith("-") else (argv[0], argv[1:])
    if verb not in VERBS and verb not in addons.VERBS:
        hint = did_you_mean(verb, (*VERBS, *addons.VERBS))
        return _print_usage_error(f"unknown verb {verb!r}{hint}", "see python runner.py --help")
    try:
        module = _import_verb(verb)
    except PipelineError as error:
        return print_error(error)
    parser = _Parser(prog=f"python runner.py {verb}".removesuffix(" run"), description=module.HELP)
    module.add_arguments(parser)
    return _run(module, parser.parse_args(options))


def _import_verb(verb: str) -> ModuleType:
    return importlib.import_module(f"pipeline.cli.{verb.replace('-', '_')}") if verb in VERBS else addons.VERBS[verb]


def _run(module: ModuleType, options: argparse.Namespace) -> int:
    try:
        code: int = module.run(options)
    except PipelineError as error:
        code = print_error(error)
    except BrokenPipeError:
        # A reader that stops early (`… | head`) has closed the pipe. That is not an error.
        sys.stderr.close()
        _discard_output()
        return 0
    except OSError as error:
        # Find out whether standard output caused the error. Write a character: flushing alone succeeds on an
        # unbuffered stream, because its buffer is empty.
        if _flush_output("\n") is None:
            raise
        return _report_output(error)
    failure = _flush_output()
    return code if failure is None else code or _report_output(failure)


def open_streams() -> None:
    """Open the null device in place of closed standard streams, so that output to these streams is discarded.

    Otherwise the next file that the process opens gets the stream's descriptor (0 to 2), and native libraries print
    into that file.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # open() returns the lowest free descriptor. All lower descriptors are open, so it returns `number`.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - open until the process ends
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - open until the process ends


def _flush_output(text: str = "") -> OSError | None:
    """Write a text and all buffered output to standard output; return the error, or None if it succeeds."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        return error
    return None


def _report_output(error: OSError) -> int:
    """Print an error that standard output cannot be written, and return the exit code."""
    _discard_output()
    headline = f"standard output: expected a stream that can be written, received: {error.strerror}"
    return print_error(MachineError(headline, "redirect it to another file, or free some space"))


def _discard_output() -> None:
    """Discard buffered output, because Python would try to write it once more when it exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _print_usage_error(headline: str, remedy: str) -> int:
    from components.base.errors import InputError

    return print_error(InputError(headline, remedy))


def _make_overview_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python runner.py",
        usage="python runner.py [VERB] [options]",
        description="A TFX pipeline from a config: raw rows in, a pushed, serving-ready model out.",
        epilog="verbs:\n"
        + "".join(f"  {verb:16}{text}\n" for verb, text in {**VERBS, **addons.describe_verbs()}.items())
        + "\n"
        + _EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    importlib.import_module("pipeline.cli.run").add_arguments(parser)
    return parser


class _Parser(argparse.ArgumentParser):
    """An argument parser that suggests the most similar option for an unknown one."""

    def error(self, message: str) -> NoReturn:
        """Print the error in the command line with a suggestion, and exit with code 2."""
        unknown = re.search(r"unrecognized arguments: (\S+)", message)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            option = unknown[1].partition("=")[0]
            message = (
                f"expected {option} before --, received it after"
                if option in flags
                else f"unknown option {unknown[1]}{did_you_mean(option, flags)}"
            )
        sys.exit(_print_usage_error(message, f"see {self.prog} --help"))
