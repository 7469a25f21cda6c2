"""One run of a scheduled pipeline at a time: the next one that is due does not begin beside it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.errors import InputError

FILE = "turn.lock"


@contextmanager
def alone(folder: Path, pipeline: str) -> Iterator[None]:
    """Holds a pipeline for this process; the kernel lets go of it however the process ends.

    Args:
      folder: of the pipeline, out/<pipeline>.
      pipeline: its name.

    Raises:
      InputError: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"a run of {pipeline} goes on already{_whose(lock)}, and with a schedule there is one at a time",
                "wait for its end, or stop it; without the schedule section several may go on at once",
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps({"process": os.getpid(), "since": time.time()}).encode(), 0)
        yield
    finally:
        os.close(lock)


def _whose(lock: int) -> str:
    try:
        told = json.loads(os.pread(lock, 200, 0))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told["since"]))
        return f" since {since}, in process {told['process']}"
    # Whoever has it is just about to say so.
    except (ValueError, KeyError, TypeError):
        return ""
