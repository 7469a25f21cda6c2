"""What a task tells the supervisor that has started it: that it lives, the step it is at, and why it ends.

Where nobody has started it that wants to know, nothing is told. Each sign is a line of JSON in a pipe.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any

_EVERY_SECONDS = 1.0

_pipe: int | None = None
_turn = threading.Lock()
"""A line of more than PIPE_BUF bytes goes into the pipe in parts, and another thread's would come between them."""


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
        left = json.dumps({what: value}).encode() + b"\n"
        with _turn:
            # A full pipe takes no more until the supervisor reads; a signal meanwhile ends a write before its end.
            while left:
                left = left[os.write(_pipe, left) :]


def _live() -> None:
    pause = threading.Event()
    while True:
        tell("alive", 1)
        pause.wait(_EVERY_SECONDS)
