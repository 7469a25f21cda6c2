"""Commands of this project as forks of the node server, which has already imported the slow modules.

The nodes that such a command runs are forks of the same server. A test for which the process itself matters (what it
imports, its signals, its children) starts a real one, see `command`.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing.connection
import os
import pickle
import shlex
import signal
import socketserver
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from components.base.processes import kill_group, signal_at_parents_death
from pipeline.orchestration.local import processes
from pipeline.orchestration.local.processes import context, start_server
from tests.support.programs import forked_export_check

_OF_THE_SERVER = ("PIPELINE_SERVER_OUTPUT", "PIPELINE_SERVER_PARENT", "PIPELINE_SERVER_PID")
_CLIENT = Path(__file__).with_name("forked_client.py")


class ForkedCommand:
    """A program that runs in a fork of the node server.

    Args:
      main: Function that runs the program and returns its exit code; importable by its name.
      arguments: the command line.
      folder: the working directory.
      environment: the whole environment of the program and of its nodes.
    """

    def __init__(
        self,
        main: Callable[[Sequence[str]], int],
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
    ) -> None:
        start_server()
        self._title = " ".join(arguments)
        self._scratch = tempfile.TemporaryDirectory()
        files = [Path(self._scratch.name, name) for name in ("out", "err")]
        start_arguments = (main, tuple(arguments), folder, dict(environment), forked_export_check.python(), *files)
        self._process = context().Process(target=_enter, args=start_arguments)
        self._process.start()
        self._files = files

    @property
    def pid(self) -> int:
        """The ID of the process."""
        pid: int = self._process.pid
        return pid

    def has_ended(self, timeout: float = 0) -> bool:
        """Return whether the command ends within this number of seconds."""
        return bool(multiprocessing.connection.wait([self._process.sentinel], timeout))

    def kill(self) -> None:
        """Kill the command and all processes of its group."""
        kill_group(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> tuple[int, str, str]:
        """Wait for the command to end.

        Returns:
          The exit code (negative for a signal), stdout and stderr.

        Raises:
          TimeoutError: The command has not ended after this number of seconds and was killed.
        """
        with self._scratch:
            if not self.has_ended(timeout):
                self.kill()
                raise TimeoutError(f"expected {self._title} to end within {timeout} s")
            self._process.join()
            # A command that died early has not written its result.
            out, err = (
                file.read_text(encoding="utf-8", errors="replace") if file.exists() else "" for file in self._files
            )
            return self._process.exitcode, out, err


@contextlib.contextmanager
def interpreter(
    main: Callable[[Sequence[str]], int], folder: Path, timeout: float, real: str | None = None
) -> Iterator[Path]:
    """Yield an executable that replaces `python` where a command line names the interpreter of a command.

    Args:
      main: the program that `PYTHON FILE ARGUMENTS` runs, whatever the file.
      folder: for the executable.
      timeout: Time limit of a command, in seconds.
      real: Command lines with this argument are run by the real interpreter.
    """
    start_server()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = json.loads(self.rfile.readline())
            with starting:
                command = ForkedCommand(main, request["arguments"], Path(request["folder"]), request["environment"])
            self.wfile.write(json.dumps(command.wait(timeout)).encode())

    starting, address = threading.Lock(), str(folder / "forks")
    with socketserver.ThreadingUnixStreamServer(address, Handler) as server:
        python = folder / "python"
        client = shlex.join([sys.executable, "-S", "-E", str(_CLIENT), address])
        otherwise = f'case " $* " in *" {real} "*) exec {shlex.quote(sys.executable)} "$@";; esac\n' if real else ""
        python.write_text(f'#!/bin/sh\n{otherwise}exec {client} "$@"\n')
        python.chmod(0o755)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield python
        finally:
            server.shutdown()
            thread.join()


def _enter(
    main: Callable[[Sequence[str]], int],
    arguments: tuple[str, ...],
    folder: Path,
    environment: dict[str, str],
    checking: str,
    out: Path,
    err: Path,
) -> None:
    os.setsid()
    signal_at_parents_death(signal.SIGKILL, parent=int(os.environ["PIPELINE_SERVER_PID"]))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in ((1, out), (2, err)):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
        os.close(file)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    os.chdir(folder)
    _set_environment(environment)
    forked_export_check.use(checking)
    _fork_nodes_from_the_same_server(environment, checking)
    sys.argv = [main.__module__, *arguments]
    sys.exit(main(arguments))


def _fork_nodes_from_the_same_server(environment: dict[str, str], checking: str) -> None:
    """Fork the command's nodes from this server, not from a second one, and set their environment."""
    forkserver._forkserver.ensure_running = _do_nothing
    forkserver.ensure_running = _do_nothing

    def pickle_work(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
        return pickle.dumps((_in_environment, (environment, checking, function, arguments)))

    processes.pickle_work = pickle_work


def _in_environment(
    environment: dict[str, str], checking: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    _set_environment(environment)
    return forked_export_check.call(checking, function, *arguments)


def _set_environment(environment: dict[str, str]) -> None:
    server_variables = {name: os.environ[name] for name in _OF_THE_SERVER}
    # As the server of a real command has it.
    path = os.pathsep.join(filter(None, [os.environ["PYTHONPATH"], environment.get("PYTHONPATH")]))
    variables = {**environment, **server_variables, "PYTHONPATH": path}
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


def _do_nothing() -> None:
    pass
