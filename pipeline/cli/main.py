"""Entry point of the command line: run the module of a verb, and convert its errors to an exit code.

The module of a verb defines `HELP`, the description that --help prints; `EXAMPLE`, a command that --help shows;
`add_arguments(parser)`, which adds the options; and `run(options)`, which returns the exit code or raises a
PipelineError.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from components.base.errors import INPUT, InputError, MachineError, PipelineError
from pipeline.cli import usage
from pipeline.cli.verbs import GROUPS, find_verb, load_verb
from pipeline.core.text import print_error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      arguments: The command line without the program's name. If None, the arguments of this process.

    Returns:
      The exit code.
    """
    open_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        usage.print_overview()
        return 0 if words else INPUT
    if words[0] in ("--version", "version"):
        usage.print_version()
        return 0
    try:
        name, options = find_verb(words)
        if name in GROUPS or (words[0] in GROUPS and words[1:2] in (["-h"], ["--help"])):
            usage.print_group(words[0])
            return 0 if words[1:] else INPUT
        module = load_verb(name)
    except InputError as error:
        return print_error(error)
    return _run(module, usage.make_parser(name, module).parse_args(options))


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
