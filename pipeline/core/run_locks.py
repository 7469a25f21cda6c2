"""Locks by which runs of a pipeline, their nodes and gc exclude each other; runs.pml is a model of their protocol.

The kernel releases a lock when the last process that has it ends, which is later than the end of a run that is killed:
its nodes are killed after it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from components.errors import InputError, MachineError
from components.files import exclusive_lock, shared_lock

_ARTIFACTS = "artifacts.lock"
_WAIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


@contextlib.contextmanager
def artifacts_in_use(output: Path) -> Iterator[None]:
    """Keeps gc from removing artifacts; waits for a gc that does.

    Args:
      output: the pipeline's folder, `out/<pipeline>`.
    """
    output.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # A folder without locks, such as a mounted bucket, cannot be locked by gc either.
        with contextlib.suppress(OSError):
            stack.enter_context(shared_lock(output / _ARTIFACTS))
        yield


@contextlib.contextmanager
def artifacts_unused(output: Path) -> Iterator[None]:
    """Excludes runs, which wait for the end of the block.

    Args:
      output: the pipeline's folder, `out/<pipeline>`.

    Raises:
      InputError: a run, or another gc, is in progress on this machine.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(output / _ARTIFACTS, wait=False))
        except BlockingIOError as error:
            raise InputError(
                "gc: expected no active run, received one that is in progress and may use these artifacts",
                "wait until the run has ended",
            ) from error
        yield


def node_lock(run: Path, node: str) -> Path:
    """The file that the process of a node locks.

    Args:
      run: the run's folder.
      node: the node's id.
    """
    return run / f"{node}.lock"


@contextlib.contextmanager
def after_earlier_attempt(run: Path, node: str) -> Iterator[None]:
    """Holds the lock of a node; waits until the process of an earlier attempt, which is being killed, has ended.

    Args:
      run: the run's folder.
      node: the node's id.

    Raises:
      MachineError: it has not ended after a minute.
    """
    deadline = time.monotonic() + _WAIT_SECONDS
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(exclusive_lock(node_lock(run, node), wait=False))
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise MachineError(
                        f"a process of an earlier attempt at {node} of run {run.name} has not ended",
                        f"end the processes that have {node_lock(run, node)} open, then --resume the run",
                    ) from error
                time.sleep(_PAUSE_SECONDS)
        yield
