"""Child processes that end with this process.

    ChildProcess     a fork that calls a function at once: tasks of a training cluster, trials of the Tuner, workers of
                     Beam and their fork server
    WaitingProcess   a fork or a new interpreter that imports modules at once, and calls a function when its arguments
                     are known: the checks of an exported model and of its server, training and conversion for devices

`processes.with_second_try` starts a lost process once more. Not started here are nodes, which multiprocessing's fork
server forks; guards that cancel a job after its node has ended, which must outlive the node; commands of the user,
which may be started in any thread; and Kubeflow's client, which runs in another environment.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import multiprocessing.connection
import os
import pickle
import signal
import sys
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from components.base.processes import exit_now, signal_at_parents_death

_ROOT = Path(__file__).parents[2]
_PYTHON = sys.executable


class ChildProcess:
    """A fork of this process that calls a function and exits.

    Its exit code is 0 after the function has returned, the code of a SystemExit, or 1 after another exception, whose
    traceback it prints. The kernel kills it when this process ends, or already when the thread ends that has started
    it.

    Args:
      function: Function to call.
      arguments: Arguments of the function.
      output: File descriptor for stdout and stderr of the process. If None, it shares them with this process.

    Attributes:
      pid: Process ID.
      pidfd: File descriptor that becomes readable when the process ends.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, output: int | None = None) -> None:
        self._create_result()
        parent = os.getpid()
        # The process would write buffered text a second time.
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            _call_and_exit(parent, self._result, output, function, *arguments)
        self._watch(pid)

    def _create_result(self) -> None:
        # A pipe would block the process at a large result until this process reads.
        self._result = self._close_later(os.memfd_create("result"))

    def _watch(self, pid: int) -> None:
        self.pid, self.pidfd = pid, self._close_later(os.pidfd_open(pid))
        self._code: int | None = None

    def _close_later(self, descriptor: int) -> int:
        """Close a file descriptor when this object is deleted."""
        weakref.finalize(self, os.close, descriptor)
        return descriptor

    def poll(self, seconds: float | None = 0.0) -> int | None:
        """Return the exit code, or the negative number of the signal that killed the process.

        Args:
          seconds: Maximum time to wait for the end of the process. If None, the time is not limited.

        Returns:
          The exit code; None while the process runs.
        """
        if self._code is None and multiprocessing.connection.wait([self.pidfd], seconds):
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def wait(self) -> int:
        """Wait until the process has ended, and return the same code as `poll`."""
        while (code := self.poll(None)) is None:
            pass
        return code

    def result(self) -> Any:
        """Wait until the process has ended, and return what the function has returned; None if it has not returned."""
        code, result = self.wait(), _read(self._result)
        return pickle.loads(result) if result and not code else None  # noqa: S301 - written by the child process

    def send_signal(self, signum: signal.Signals) -> None:
        """Send a signal to the process, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def end(self, grace_seconds: float = 0.0) -> None:
        """End the process, and wait until it has ended.

        Args:
          grace_seconds: Time between SIGTERM and SIGKILL. By default, the process is killed at once.
        """
        if grace_seconds:
            self.send_signal(signal.SIGTERM)
            self.poll(grace_seconds)
        self.kill()
        self.wait()


class WaitingProcess(ChildProcess):
    """A process that imports modules at once, and calls a function when this process knows the arguments.

    A fork already has the imports of this process, which take seconds in a new interpreter. It does not share anything
    that this process creates after the fork, such as TensorFlow's runtime, functions that graphs call, or resources.

    Args:
      module: Name of a module with a function `load`. The process calls it at once. It imports the modules that are
        still needed, and returns the function to call later.
      fork: Whether the process is forked. Only a process with a single thread can be forked, see `is_single_threaded`,
        because the threads of TensorFlow and gRPC do not survive a fork. Otherwise a new interpreter is started.
    """

    def __init__(self, module: str, *, fork: bool) -> None:
        self._output = self._close_later(os.memfd_create("output"))
        read, write = os.pipe()
        self._request = self._close_later(write)
        if fork:
            super().__init__(_wait_and_call, module, read, output=self._output)
        else:
            self._create_result()
            # The folder of the project precedes the current folder, which may contain packages of the same names.
            program = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from {__name__} import main; main()"
            arguments = [_PYTHON, "-c", program, module, str(os.getpid()), str(self._result)]
            files = [(os.POSIX_SPAWN_DUP2, old, new) for old, new in ((read, 0), (self._output, 1), (self._output, 2))]
            self._watch(os.posix_spawn(_PYTHON, arguments, os.environ, file_actions=files))
        os.close(read)

    def run(self, *arguments: Any) -> None:
        """Call the function in the process. This method can be called only once.

        Args:
          arguments: Arguments of the function, which are pickled.
        """
        # The pipe is broken if the process was killed. `poll` then returns the exit code.
        with contextlib.suppress(BrokenPipeError), open(self._request, "wb", closefd=False) as pipe:
            pickle.dump(arguments, pipe)

    def output(self) -> str:
        """Return what the process has written to stdout and stderr so far."""
        return _read(self._output).decode(errors="replace")


def is_single_threaded() -> bool:
    """Return whether this process has a single thread and can therefore be forked."""
    return len(list(Path("/proc/self/task").iterdir())) == 1


def main() -> NoReturn:
    """Run a WaitingProcess in a new interpreter."""
    module, parent, result = sys.argv[1:]
    _call_and_exit(int(parent), os.open(f"/proc/{parent}/fd/{result}", os.O_WRONLY), None, _wait_and_call, module, 0)


def _wait_and_call(module: str, request: int) -> Any:
    function = importlib.import_module(module).load()
    with open(request, "rb", closefd=False) as pipe:
        return function(*pickle.load(pipe))  # noqa: S301 - sent by the parent process


def _call_and_exit(
    parent: int, result: int, output: int | None, function: Callable[..., Any], *arguments: Any
) -> NoReturn:
    code = 1
    try:
        signal_at_parents_death(signal.SIGKILL, parent)
        if output is not None:
            os.dup2(output, 1)
            os.dup2(output, 2)
        value = pickle.dumps(function(*arguments))
        with open(result, "wb") as file:
            file.write(value)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.stdout.flush()
        traceback.print_exc()
    finally:
        logging.shutdown()
        exit_now(code)


def _read(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
