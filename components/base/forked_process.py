"""A process that is forked early and runs a function later, when the function's arguments are known.

The fork takes place while this process has a single thread. The forked process already has the imports of this process,
which take seconds in a new interpreter. It does not share anything that this process creates after the fork, such as
TensorFlow's runtime, functions that graphs call, or resources.
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
    """A forked process, with the methods of subprocess.Popen that its users need. It ends when this process ends.

    Create it while this process has a single thread, because the threads of TensorFlow and gRPC do not survive a fork.

    Args:
      load: Function that the forked process calls at once. It imports the modules that are still needed, and returns
        the function to run later. That function takes strings and returns the exit code.
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
        """Wait until the process has ended."""
        self.wait()

    def run(self, *arguments: str, log: Path) -> None:
        """Start the function in the forked process. This method can be called only once.

        Args:
          arguments: Arguments of the function.
          log: File for the output of the process.
        """
        # The pipe is broken if the process was killed. `poll` then returns the exit code.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write, json.dumps([list(arguments), str(log)]).encode())
        os.close(self._write)

    def poll(self) -> int | None:
        """Return the exit code, or the negative number of the signal that killed the process. None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended.

        Args:
          timeout: Maximum time to wait, in seconds. If None, the time is not limited.

        Returns:
          The exit code, as from `poll`.

        Raises:
          TimeoutExpired: The process is still running after the timeout.
        """
        if self._code is None:
            select.select([self._ended], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("the forked process", timeout or 0.0)
        return code

    def send_signal(self, signum: int) -> None:
        """Send a signal to the process, unless it has ended."""
        if self.poll() is None:
            os.kill(self._pid, signum)

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def is_single_threaded() -> bool:
    """Return whether this process has a single thread and can therefore be forked."""
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
