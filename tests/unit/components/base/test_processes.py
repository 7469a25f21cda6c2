"""Termination of processes."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

_IN_NATIVE_CODE = """
import ctypes
from components.base.processes import end_at_sigterm
end_at_sigterm()
print("ready", flush=True)
ctypes.CDLL(None).pause()
"""


def test_sigterm_ends_the_first_process_of_a_container_in_native_code() -> None:
    container = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
    line = [*container, sys.executable, "-c", _IN_NATIVE_CODE]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as unshare:
        assert unshare.stdout is not None
        assert unshare.stdout.readline() == "ready\n"
        [first] = psutil.Process(unshare.pid).children()
        first.send_signal(signal.SIGTERM)
        assert unshare.wait(30) == 128 + signal.SIGTERM


_WITH_WAIT = """
import ctypes, sys
from components.base.processes import end_at_sigterm
end_at_sigterm(sys.stdin.readline)
print("ready", flush=True)
ctypes.CDLL(None).pause()
"""


def test_process_ends_after_sigterm_when_the_wait_is_over() -> None:
    line = [sys.executable, "-c", _WITH_WAIT]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.stdin.close()
        assert process.wait(30) == 128 + signal.SIGTERM
