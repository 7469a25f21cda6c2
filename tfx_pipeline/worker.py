"""Run verbs of the command line one after the other, for `tfx_pipeline.command_line`.

Each line of standard input is a JSON object with `folder`, the working directory, and `arguments`. The program answers
with JSON lines: `text`, what the verb prints, as soon as it prints it; then `code`, its exit code, with `errors`, what
it printed to standard error.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO


class Sender(io.TextIOBase):
    """A text stream that sends what is written to it as messages.

    Args:
      replies: The stream for the messages.
    """

    encoding = "utf-8"

    def __init__(self, replies: TextIO) -> None:
        self._replies = replies

    def write(self, text: str) -> int:
        """Send a text."""
        self.send({"text": text})
        return len(text)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._replies.write(json.dumps(message) + "\n")
        self._replies.flush()


def main() -> None:
    """Answer requests until standard input ends."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    sender = Sender(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    # Native code and child processes must neither read requests nor write between the replies.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # The packages of this project must be found before modules of the same names in the user's folder.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    for line in requests:
        request = json.loads(line)
        errors = io.StringIO()
        with contextlib.redirect_stdout(sender), contextlib.redirect_stderr(errors):
            try:
                code = _run(request["folder"], request["arguments"])
            except KeyboardInterrupt:
                code = 130
        sender.send({"code": code, "errors": errors.getvalue()})


def _run(folder: str, arguments: list[str]) -> int:
    from pipeline.cli import main as run

    os.chdir(folder)
    try:
        return run(arguments)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except Exception:
        # A fault of this project: the user sees where it is, and the next verb runs.
        sys.stderr.write(traceback.format_exc())
        return 1


if __name__ == "__main__":
    main()
