"""The processes of a run, beside what runs in them."""

from __future__ import annotations

import signal
import subprocess
import sys

_KILLED = """
import multiprocessing, os, signal
from pipeline.orchestration.local import processes
processes.start_server()
lock = multiprocessing.get_context("forkserver").Lock()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_semaphores_of_a_killed_process_are_removed_without_a_warning() -> None:
    # The tracker has the pipe of the errors, so it has ended when the pipe is closed.
    ended = subprocess.run([sys.executable, "-c", _KILLED], stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")
