"""Termination of processes."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil

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
