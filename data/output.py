"""Puts a finished file or folder in its place in one step, and ends a data program with a clear word.

A program that is killed half-way leaves a hidden `.<name>.<something>.part` beside its output and never a part of
the output itself, so whatever a reader finds under the asked-for name is whole.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from components.errors import InputError, find


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A hidden path beside `path` to write a file or a folder to; it takes `path`'s name when the block succeeds.

    A folder can only take the place of a missing or an empty one. On an exception nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The random part keeps two programs that write the same output at once out of each other's way.
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        yield part
        part.replace(path)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


def positive(text: str) -> int:
    """A whole number above zero, as an argparse type that also takes `1_000_000` and `1e6`."""
    value = float(text) if "e" in text.lower() else int(text)
    if value < 1 or value != int(value):
        raise argparse.ArgumentTypeError(f"expected a whole number above zero, received {text}")
    return int(value)


def finish(work: Callable[[], str]) -> int:
    """Do a program's work, print the one line it returns, and give the exit code.

    An error that the user can mend is printed as a headline and a remedy; any other one is a fault of ours and
    keeps its traceback.
    """
    try:
        print(work())
    except OSError as error:
        told = find(error) or InputError(
            f"{error.filename or 'the output'}: {error.strerror or error}",
            "choose a path that can be written, with --output",
        )
        print(told, file=sys.stderr)
        return told.exit_code
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0
