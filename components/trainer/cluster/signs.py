"""What a task tells the supervisor that has started it: that it lives, the step it is at, and why it ends.

Where nobody has started it that wants to know, nothing is told. Each sign is a line of JSON in a pipe.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any

_EVERY_SECONDS = 1.0

_LONGEST = 600
"""Characters of a text: lines of up to PIPE_BUF bytes, 4 KiB, are written whole, and a character may take six."""

_pipe: int | None = None


def begin(pipe: int) -> None:
    """Tells everything into this file descriptor from now on, and once a second that this process is not frozen."""
    global _pipe
    _pipe = pipe
    threading.Thread(target=_live, name="signs of life", daemon=True).start()


def read(line: bytes) -> list[tuple[str, Any]]:
    """What a line tells: (what, value) pairs."""
    try:
        return list(json.loads(line).items())
    except ValueError:
        # Cut off, as by the death of its teller.
        return []


def tell(what: str, value: int | str) -> None:
    """Tells one thing.

    Args:
      what: `step` (the optimizer step that is done), `restored`, `saved` (a checkpoint's step), `damaged` (its name),
        or `error` (a told error's text).
      value: its value.
    """
    if _pipe is not None:
        text = value if isinstance(value, int) else value[:_LONGEST]
        os.write(_pipe, json.dumps({what: text}).encode() + b"\n")


def _live() -> None:
    pause = threading.Event()
    while True:
        tell("alive", 1)
        pause.wait(_EVERY_SECONDS)
