"""Tests for the processes of a run."""

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
    # The resource tracker inherits stderr. subprocess.run therefore also waits until the tracker has ended.
    process = subprocess.run([sys.executable, "-c", _KILLED], stderr=subprocess.PIPE, text=True, check=False)
    assert (process.returncode, process.stderr) == (-signal.SIGKILL, "")
