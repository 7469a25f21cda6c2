"""From the command line to a verb, and from its errors to one headline and an exit code."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from components.errors import INPUT, PipelineError
from components.names import did_you_mean

VERBS = {
    "run": "run the pipeline; `--local` alone means `run --local`",
    "compile": "write the compiled pipeline, for `run-node`",
    "run-node": "run one node of a compiled pipeline, as orchestrators do",
    "init": "write a first config and a schema from the data",
    "validate": "check a config, and its columns against the data",
    "plan": "show the nodes of a run, their inputs, the engine, and what is cached",
    "manifest": "write what Kubernetes or Vertex AI needs to train",
    "serve": "serve the pushed model on this machine",
    "runs": "list the runs: state, duration, span, verdict, metrics, pushed version",
    "show": "show a run, node by node",
    "artifacts": "list what the runs have made",
    "lineage": "show what something was made from, and what was made of it",
    "compare": "hold two runs against each other: config, schema, data, metrics, model",
    "diff-data": "hold the data of two runs against each other, column by column",
    "report": "write a page that tells all of a run, and a model card",
    "site": "write a page on all runs, with links to their reports",
    "serve-ui": "serve the same pages on this machine, also on runs that go on",
    "why-not-cached": "tell why a node ran, rather than take what was there",
    "export": "write the whole metadata store as JSON Lines, or as OpenLineage events",
    "gc": "find what no run to keep and no pushed version needs, and remove it",
    "due": "tell whether a scheduled run has something to do",
    "metadata": "bring a metadata store of an older release up to date",
    "models": "list the pushed versions, and which of them serve",
    "promote": "make a version the stable one",
    "canary": "give a version a share of the traffic",
    "rollback": "go back to the version that was stable before",
    "verify": "hold pushed versions against their manifests",
    "doctor": "look at this machine: what is wrong, and how to mend it",
    "schema": "write the JSON Schema of the config, for editors",
}
"""Verb → what it does. Each is the module of that name; only the one that is called is imported."""

_EPILOG = """\
exit codes: 0 done; 1 our fault or the machine's; 2 the config, the data or your code; 3 a gate said no; 130 interrupted

  python runner.py --local                                        the taxi example, from rows to a pushed model
  python runner.py init --data FILES --label COLUMN               a first config for your own data
  python runner.py --local --config configs/mine.yaml             your own
  python runner.py --local --set training.steps=200               any field, as often as you like
  python runner.py --local --resume latest                        go on where a run failed
  python runner.py VERB --help                                    the options of a verb
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        _overview().print_help()
        return 0 if given else INPUT
    verb, options = ("run", given) if given[0].startswith("-") else (given[0], given[1:])
    if verb not in VERBS:
        return _told(f"unknown verb {verb!r}{did_you_mean(verb, VERBS)}", "see python runner.py --help")
    module = importlib.import_module(f"pipeline.commands.{verb.replace('-', '_')}")
    parser = _Parser(prog=f"python runner.py {verb}".removesuffix(" run"), description=module.HELP)
    module.add_arguments(parser)
    return _run(module, parser.parse_args(options))


def _run(module: ModuleType, options: argparse.Namespace) -> int:
    try:
        code: int = module.run(options)
    except PipelineError as error:
        return tell(error)
    except BrokenPipeError:
        # The reader of our output has gone (`… | head`); that is no error.
        sys.stderr.close()
        return 0
    return code


def tell(error: PipelineError) -> int:
    """Prints an error's headline, details and remedy; returns its exit code."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), error.headline))
    for line in error.details:
        console.print(Text(f"  - {line}"))
    console.print(Text.assemble(("  remedy: ", "bold"), error.remedy))
    return error.exit_code


def _told(headline: str, remedy: str) -> int:
    from components.errors import InputError

    return tell(InputError(headline, remedy))


def _overview() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python runner.py",
        usage="python runner.py [VERB] [options]",
        description="A TFX pipeline from a config: raw rows in, a pushed, serving-ready model out.",
        epilog="verbs:\n" + "".join(f"  {verb:16}{what}\n" for verb, what in VERBS.items()) + "\n" + _EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    importlib.import_module("pipeline.commands.run").add_arguments(parser)
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser that offers the flag that was meant."""

    def error(self, message: str) -> NoReturn:
        """Tells what is wrong with the command line, and exits."""
        unknown = re.search(r"unrecognized arguments: (\S+)", message)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            message = f"unknown option {unknown[1]}{did_you_mean(unknown[1].partition('=')[0], flags)}"
        sys.exit(_told(message, f"see {self.prog} --help"))
