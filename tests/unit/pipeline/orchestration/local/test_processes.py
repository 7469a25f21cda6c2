"""Tests for the processes of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pipeline.orchestration.local import processes

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


@pytest.mark.parametrize(("pause", "measured"), [(0.9, 1), (1.1, 2)])
def test_memory_is_measured_for_two_percent_of_the_time(
    pause: float, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, calls = [100.0], []

    def read_memory(process: psutil.Process) -> SimpleNamespace:
        calls.append(process.pid)
        clock[0] += 0.02
        return SimpleNamespace(rss=1 << 20)

    monkeypatch.setattr(processes.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(psutil.Process, "memory_info", read_memory)
    monkeypatch.setattr(processes, "_fork", lambda *work: (None, SimpleNamespace(pid=os.getpid())))
    monkeypatch.setattr(psutil.Process, "children", lambda process, recursive: [])
    child = processes.NodeProcess("child", Path(os.devnull), time.sleep, 0)
    clock[0] += pause
    child.sample()
    assert calls == [os.getpid()] * measured
    assert child.peak_memory_mb == 1
