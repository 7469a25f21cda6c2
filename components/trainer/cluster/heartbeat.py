"""The status messages that a task of a local cluster sends to its supervisor: heartbeats, progress, errors.

A message is a line of JSON in a pipe, an object with one key. Without a supervisor, messages are dropped.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from components.trainer.cluster.traffic import Traffic

_INTERVAL_SECONDS = 1.0

_pipe: int | None = None
_traffic: Traffic | None = None
_lock = threading.Lock()
"""A line of more than PIPE_BUF bytes is written in parts, and other threads must not write between them."""


def start(pipe: int) -> None:
    """Send all messages of this process into a file descriptor from now on, and its traffic every second."""
    global _pipe, _traffic
    _pipe, _traffic = pipe, Traffic()
    threading.Thread(target=_send_heartbeats, name="heartbeat", daemon=True).start()


def parse(line: bytes) -> list[tuple[str, Any]]:
    """Return the (name, value) pairs of a message; empty if the line is incomplete, because its sender was killed."""
    try:
        return list(json.loads(line).items())
    except ValueError:
        return []


def send_status(name: str, value: int | str | Sequence[int] | Mapping[str, int]) -> None:
    """Send a message.

    Args:
      name: `step` (optimizer steps done), `restored` or `saved` (a checkpoint's step), `damaged` (a checkpoint's name),
        `warning` (for the node's log), `error` (the text of a PipelineError), `traffic` (bytes sent and received),
        `variables` (the bytes that each ps holds), `steps` (the steps that each worker has taken), or `context` (the ID
        of the chief's context on the ps and workers).
      value: Its value.
    """
    if _pipe is not None:
        remaining = json.dumps({name: value}).encode() + b"\n"
        with _lock:
            # A write may be partial: the pipe may be full until the supervisor reads, or a signal may interrupt it.
            while remaining:
                remaining = remaining[os.write(_pipe, remaining) :]


def warn(text: str) -> None:
    """Log a warning in this process and in its supervisor, whose log the user reads first."""
    logging.warning("%s", text)
    send_status("warning", text)


def send_traffic() -> None:
    """Send the bytes that this process has sent and received so far, which is also a heartbeat."""
    if _traffic is not None:
        send_status("traffic", _traffic.measure())


def _send_heartbeats() -> None:
    pause = threading.Event()
    while True:
        send_traffic()
        pause.wait(_INTERVAL_SECONDS)
