"""The local server in a process that is forked from a node, which has imported TensorFlow already."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from components.compat.grpc import OLDER_POLLING
from components.processes import exit_now, signal_at_parents_death


class ForkedServer:
    """Create it while this process has no other threads: TensorFlow's and gRPC's do not survive a fork.

    It has the methods of subprocess.Popen that LocalServerRunner uses.
    """

    def __init__(self) -> None:
        read, self._write = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._write)
            _wait_and_serve(read, parent)
        os.close(read)
        self._ended = os.pidfd_open(self._pid)
        self._code: int | None = None

    def serve(self, arguments: Sequence[str], log: Path) -> None:
        """Makes it the server.

        Args:
          arguments: of the server.
          log: the file for its output.
        """
        # If it was killed, `poll` has that.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write, json.dumps([list(arguments), str(log)]).encode())
        os.close(self._write)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end, and returns the exit code.

        Raises:
          TimeoutExpired: it still runs.
        """
        if self._code is None:
            select.select([self._ended], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("the forked server", timeout or 0.0)
        return code

    def send_signal(self, signum: int) -> None:
        """Signals it, unless it has ended."""
        if self.poll() is None:
            os.kill(self._pid, signum)

    def kill(self) -> None:
        """Kills it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def is_single_threaded() -> bool:
    """Whether this process can be forked."""
    return len(list(Path("/proc/self/task").iterdir())) == 1


def _wait_and_serve(read: int, parent: int) -> NoReturn:
    code = 1
    try:
        signal_at_parents_death(signal.SIGKILL, parent)
        os.environ.update(OLDER_POLLING)
        from components.serving.server.app import main

        with open(read, encoding="utf-8") as pipe:
            request = pipe.read()
        if request:
            arguments, log = json.loads(request)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        exit_now(code)
