"""How processes end: with the process that needs them, with their group, or without finalizers; and a second try."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, TypeVar

import psutil

from components.base.errors import MachineError

_Result = TypeVar("_Result")

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def signal_at_parents_death(signum: signal.Signals, parent: int) -> None:
    """Make the kernel send this process a signal when its parent ends; exit if it has ended already.

    Args:
      signum: The signal.
      parent: The process id that the parent had when it started this process.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signum)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parents end, so that `kill_descendants` finds them."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> None:
    """Kill all descendants of this process, also those that have left its group or session."""
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        # A process that was killed stays a descendant until it is waited for.
        psutil.wait_procs(children, timeout=1)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def kill_group(leader: int, signum: signal.Signals) -> None:
    """Signals a process and its group; does nothing if it has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signum)


def end_at_sigterm() -> None:
    """Make SIGTERM end this process at once, also if its main thread never returns from native code.

    The first process of a container ignores signals that it does not handle, and Python runs a handler only when the
    main thread returns to it. Before any other thread is started: they inherit that the signal is blocked.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        os._exit(128 + signal.sigwait({signal.SIGTERM}))

    threading.Thread(target=wait, daemon=True).start()


def exit_now(code: int) -> NoReturn:
    """Write buffered output and exits without finalizers, in which native libraries sometimes crash."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class LostProcessError(MachineError):
    """A process that this one waits for was killed, or ended before it could answer, whatever it was asked."""


def with_second_try(attempt: Callable[[], _Result]) -> _Result:
    """Call a function that starts a process and wait for its result; once more if the process was lost.

    It may have been short of memory beside another process that has ended since. After a timeout there is no second
    try: the time that the process had is the longest that it should take, and would pass again.

    Args:
      attempt: Starts a new process in each call.

    Returns:
      What the function returns.

    Raises:
      LostProcessError: The second process was lost as well.
    """
    try:
        return attempt()
    except LostProcessError as error:
        logging.warning("%s; it is started once more", error.headline)
    try:
        return attempt()
    except LostProcessError as error:
        raise type(error)(f"{error.headline}, 2 times in a row", error.remedy, error.details) from error


def describe_exit(code: int) -> str:
    """Return how a process with an exit code, negative for a signal, has ended: `was killed by SIGKILL`."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
