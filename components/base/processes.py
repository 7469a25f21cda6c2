"""Functions that end processes, and a second attempt after a process was lost.

A process can end together with its parent, together with its process group, or without finalizers.
"""

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
    """Make the kernel send this process a signal when its parent ends. Exit if the parent has already ended.

    Args:
      signum: The signal.
      parent: Process ID of the parent that started this process.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signum)


def adopt_orphans() -> None:
    """Make this process adopt descendants whose parents have ended, so that `kill_descendants` finds them."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> None:
    """Kill all descendants of this process, including processes that have left its process group or session."""
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        # A killed process stays a descendant until its parent waits for it.
        psutil.wait_procs(children, timeout=1)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def kill_group(leader: int, signum: signal.Signals) -> None:
    """Send a signal to a process group. Do nothing if the group has ended.

    Args:
      leader: Process ID of the group's leader.
      signum: The signal.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signum)


def end_at_sigterm(wait: Callable[[], object] = lambda: None) -> None:
    """Make SIGTERM end this process, even if its main thread never returns from native code.

    A handler in Python is not sufficient, because Python runs it only when the main thread returns to the interpreter.
    The default action is not sufficient either, because the kernel ignores it for the first process of a container.

    Call this function before other threads are started. They inherit the signal mask, which blocks SIGTERM.

    Args:
      wait: Function that is called after the signal in another thread; the process ends when it returns or fails.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def end() -> None:
        code = 128 + signal.sigwait({signal.SIGTERM})
        try:
            wait()
        finally:
            os._exit(code)

    threading.Thread(target=end, daemon=True).start()


def exit_now(code: int) -> NoReturn:
    """Flush the output and exit without finalizers, because native libraries sometimes crash in their finalizers."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class LostProcessError(MachineError):
    """A child process was killed, or ended before it could answer. The request itself did not cause this."""


def with_second_try(attempt: Callable[[], _Result]) -> _Result:
    """Call a function that starts a process and waits for its result. Call it again if the process was lost.

    The kernel may have killed the process because another process used too much memory, which may be free again. After
    a timeout, the function is not called again: the second process would probably exceed the time limit as well.

    Args:
      attempt: Function that starts a new process in every call. It raises LostProcessError if the process was lost.

    Returns:
      The result of the function.

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
    """Describe how a process ended, for example `was killed by SIGKILL`.

    Args:
      code: Exit code, or the negative number of the signal that killed the process.
    """
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
