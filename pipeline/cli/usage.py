"""Texts of the command line's help: the overview, the verbs of a group, and the options of a verb."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from components.base.errors import InputError
from components.base.names import did_you_mean
from pipeline.cli.verbs import GROUPS, VERBS, list_second_words, load_verb
from pipeline.core import addons
from pipeline.core.text import print_error

VERSION = "0.1.0"
"""Version of this project, as in pyproject.toml, which container images do not contain."""
_WIDTH = 120
HEADINGS = {
    "pipeline": "set up and run a pipeline",
    "model": "use its model",
    "machine": "check this machine, and set up the editor",
}
"""Group of verbs of one word → its heading."""
_EPILOG = """\
exit codes: 0 done; 1 a fault of this program or the machine; 2 the config, the data or your code; 3 rejected by a gate;
            130 interrupted

examples:
  python runner.py --local                                        the taxi example, from rows to a pushed model
  python runner.py start FILE --label COLUMN                      the same for your own table; writes a config for it
  python runner.py --local --config configs/mine.yaml             your own
  python runner.py --local --set training.steps=200               any field, as often as you like
  python runner.py --local --resume latest                        continue where a run failed
  python runner.py help VERB                                      the options of a verb, with an example
"""


def print_overview() -> None:
    """Print all verbs, and the options of `run`, which do not need a verb."""
    parser = argparse.ArgumentParser(
        prog="python runner.py",
        usage="python runner.py [VERB] [options]",
        description="A TFX pipeline from a config: raw rows in, a pushed, serving-ready model out.",
        epilog="\n".join((*_list_verbs(), "", _EPILOG)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the versions of this project and of TFX")
    options = parser.add_argument_group("options of run, also without the verb")
    load_verb("run").add_arguments(options)
    parser.print_help()


def _list_verbs() -> list[str]:
    lines = []
    for group, heading in HEADINGS.items():
        lines += [f"{heading}:"]
        lines += [f"  {name:10}{verb.text}" for name, verb in VERBS.items() if verb.group == group]
        lines += [""]
    if added := addons.describe_verbs():
        lines += ["verbs of installed packages:", *(f"  {name:10}{text}" for name, text in added.items()), ""]
    lines += ["groups of verbs; `python runner.py help runs` describes the verbs of `runs`:"]
    for name, (text, _) in GROUPS.items():
        lines += [f"  {name:10}{text}", f"            {', '.join(list_second_words(name))}"]
    return lines


def print_group(group: str) -> None:
    """Print the verbs of a group."""
    default = GROUPS[group].default
    lines = [f"usage: python runner.py {group} VERB [options]", "", f"{GROUPS[group].text}:"]
    lines += [f"  {name:24}{verb.text}" for name, verb in VERBS.items() if verb.group == group]
    lines += [""]
    lines += [f"`{group}` alone means `{group} {default}`."] if default else []
    lines += [f"`python runner.py help {group} VERB` describes the options of a verb, with an example."]
    sys.stdout.write("\n".join(lines) + "\n")


def name_program() -> str:
    """Return the beginning of commands to type next, with the path of runner.py that the user typed."""
    path = Path(sys.argv[0])
    return f"python {shlex.quote(str(path))}" if path.name == "runner.py" else "python runner.py"


def print_version() -> None:
    """Print the versions of this project, TFX, TensorFlow and Python."""
    import importlib.metadata

    packages = (f"{name} {importlib.metadata.version(name)}" for name in ("tfx", "tensorflow"))
    python = ".".join(map(str, sys.version_info[:3]))
    sys.stdout.write(f"runner.py {VERSION}, {', '.join(packages)}, Python {python}\n")


def make_parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    """Return the parser of a verb's options.

    Args:
      name: The words of the verb.
      module: The module of the verb.
    """
    parser = _Parser(
        prog=f"python runner.py {name}",
        description=textwrap.fill(module.HELP, _WIDTH),
        epilog=f"example:\n  {module.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return parser


class _Parser(argparse.ArgumentParser):
    """An argument parser that suggests the most similar option for an unknown one."""

    def error(self, message: str) -> NoReturn:
        """Print the error in the command line with a suggestion, and exit with code 2."""
        unknown = re.search(r"unrecognized arguments: (\S+)", message)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            option = unknown[1].partition("=")[0]
            group = self.prog.split()[2]
            if option in flags:
                message = f"expected {option} before --, received it after"
            elif option in list_second_words(group):
                message = f"expected {group} {option} before the options, received {option} after an option"
            else:
                message = f"unknown option {unknown[1]}{did_you_mean(option, flags)}"
        sys.exit(print_error(InputError(message, f"see {self.prog} --help")))
