"""Write outputs atomically, and end a data program with one line and an exit code.

A killed program leaves a hidden `.<name>.<letters>.part` in the output's folder, but never a partial output, so that a
file or folder under the requested name is always complete.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from components.base.errors import InputError, find


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a hidden path in the same folder for a file or folder, and rename it to `path` if the block succeeds.

    A folder can only replace an empty folder. After an exception, the hidden path is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two programs that write the same output at the same time have different hidden paths.
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
    """Parse a whole number above zero, as an argparse type; `1_000_000` and `1e6` are accepted as well."""
    value = float(text) if "e" in text.lower() else int(text)
    if value < 1 or value != int(value):
        raise argparse.ArgumentTypeError(f"expected a whole number above zero, received {text}")
    return int(value)


def finish(work: Callable[[], str]) -> int:
    """Run a program's work, print the line that it returns, and return the exit code.

    Errors that the user can fix are printed as headline and remedy. Any other error is a bug and keeps its traceback.
    """
    try:
        print(work())
    except OSError as error:
        message = find(error) or InputError(
            f"{error.filename or 'the output'}: {error.strerror or error}",
            "choose a path that can be written, with --output",
        )
        print(message, file=sys.stderr)
        return message.exit_code
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0
