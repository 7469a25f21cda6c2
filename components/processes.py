"""Makes sure that no process outlives the one that needs it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def signal_at_parents_death(signum: signal.Signals, parent: int) -> None:
    """Has the kernel send this process a signal the moment its parent ends; ends it now if that has happened.

    Args:
      signum: the signal.
      parent: the process id that the parent had when it started this process.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signum)


def kill_group(leader: int, signum: signal.Signals) -> None:
    """Signals a process and all of its group; one that is gone already is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signum)
