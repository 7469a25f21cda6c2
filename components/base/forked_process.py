"""A process that is forked while this one has no threads, and runs a function when its arguments are known.

The fork has the imports of this process already, which take seconds in a new interpreter. It does not have what this
process computes later: no runtime of TensorFlow, no functions that graphs call, no resources.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from components.base.processes import exit_now, signal_at_parents_death


class ForkedProcess:
    """Create it while this process has no other threads: TensorFlow's and gRPC's do not survive a fork.

    It has the methods of subprocess.Popen that its users need. It ends with this process.

    Args:
      load: Called in the process at once; imports what is still needed, and returns a function that takes texts and
        returns the exit code.
    """

    def __init__(self, load: Callable[[], Callable[..., int]]) -> None:
        read, self._write = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._write)
            _wait_and_run(read, parent, load)
        os.close(read)
        self._ended = os.pidfd_open(self._pid)
        self._code: int | None = None

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for its end."""
        self.wait()

    def run(self, *arguments: str, log: Path) -> None:
        """Call the function in the process; once.

        Args:
          arguments: Of the function.
          log: The file for the output of the process.
        """
        # If it was killed, `poll` has that.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write, json.dumps([list(arguments), str(log)]).encode())
        os.close(self._write)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return the exit code.

        Raises:
          TimeoutExpired: It still runs.
        """
        if self._code is None:
            select.select([self._ended], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("the forked process", timeout or 0.0)
        return code

    def send_signal(self, signum: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self._pid, signum)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def is_single_threaded() -> bool:
    """Whether this process can be forked."""
    return len(list(Path("/proc/self/task").iterdir())) == 1


def _wait_and_run(read: int, parent: int, load: Callable[[], Callable[..., int]]) -> NoReturn:
    code = 1
    try:
        signal_at_parents_death(signal.SIGKILL, parent)
        function = load()
        with open(read, encoding="utf-8") as pipe:
            request = pipe.read()
        if request:
            arguments, log = json.loads(request)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = function(*arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        exit_now(code)
