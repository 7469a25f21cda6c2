"""File locks that make the runs of a pipeline, their nodes and gc exclude each other.

`runs.pml` is a formal model of the protocol. The kernel releases a lock when the last process that holds it ends. If a
run is killed, that is later than the end of the run's own process, because its nodes are killed after it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from components.base.errors import InputError, MachineError
from components.base.files import exclusive_lock, shared_lock

_ARTIFACTS = "artifacts.lock"
_WAIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


@contextlib.contextmanager
def artifacts_in_use(output: Path) -> Iterator[None]:
    """Prevent gc from removing artifacts within the block; first wait for a gc in progress.

    Args:
      output: Output folder of the pipeline, `out/<pipeline>`.
    """
    output.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # On a file system that does not support locks, such as a mounted bucket, gc cannot take the lock either.
        with contextlib.suppress(OSError):
            stack.enter_context(shared_lock(output / _ARTIFACTS))
        yield


@contextlib.contextmanager
def artifacts_unused(output: Path) -> Iterator[None]:
    """Exclude runs within the block; runs that start meanwhile wait for its end.

    Args:
      output: Output folder of the pipeline, `out/<pipeline>`.

    Raises:
      InputError: A run or another gc is in progress on this machine.
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


def get_node_lock_path(run: Path, node: str) -> Path:
    """Return the path of the file that the process of a node locks.

    Args:
      run: Folder of the run.
      node: ID of the node.
    """
    return run / f"{node}.lock"


@contextlib.contextmanager
def after_earlier_attempt(run: Path, node: str) -> Iterator[None]:
    """Hold the lock of a node within the block.

    First wait until the process of an earlier attempt at the node, which is being killed, has ended.

    Args:
      run: Folder of the run.
      node: ID of the node.

    Raises:
      MachineError: The process of the earlier attempt has not ended after a minute.
    """
    deadline = time.monotonic() + _WAIT_SECONDS
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(exclusive_lock(get_node_lock_path(run, node), wait=False))
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise MachineError(
                        f"a process of an earlier attempt at {node} of run {run.name} has not ended",
                        f"end the processes that have {get_node_lock_path(run, node)} open, then --resume the run",
                    ) from error
                time.sleep(_PAUSE_SECONDS)
        yield
