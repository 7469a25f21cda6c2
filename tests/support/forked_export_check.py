"""The program that loads an exported model, in forks of a process that has imported TensorFlow, as the program does.

Nearly every training of the tests starts the program, and importing is most of its work. The program itself is started
by unit/components/trainer/test_export_check.py, and by runs that are not forks (`command_process`).

The program that converts models to TensorFlow Lite imports the same; unit/components/edge/test_conversion.py has both.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from components.base.processes import signal_at_parents_death
from components.compat.tensorflow import import_for_predictions

_ROOT = Path(__file__).parents[2]
_PROGRAMS = ("components.trainer.export_check_process", "components.edge.conversion_process")
# Send the environment and the three standard files to the server, and end as the fork ends.
_CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    socket.send_fds(connection, [b"-"], [0, 1, 2])
    connection.sendall(json.dumps([sys.argv[3], dict(os.environ)]).encode())
    connection.shutdown(socket.SHUT_WR)
    sys.exit((connection.recv(1) or b"\\1")[0])
"""


_interpreters: list[str] = []


def python() -> str:
    """Start the server, which ends with this process; return an interpreter that runs the programs in forks of it."""
    if not _interpreters or not Path(_interpreters[-1]).exists():
        _interpreters.append(_start_server())
    return _interpreters[-1]


def _start_server() -> str:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    address, interpreter = Path(folder.name, "socket"), Path(folder.name, "python")
    client = shlex.join([sys.executable, "-S", "-E", "-c", _CLIENT, str(address)])
    interpreter.write_text(f'#!/bin/sh\nexec {client} "$@"\n')
    interpreter.chmod(0o755)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    # Listen before the imports: the first clients wait in the queue.
    listener.listen()
    server = subprocess.Popen(
        [sys.executable, __file__, str(listener.fileno()), str(os.getpid())],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        pass_fds=[listener.fileno()],
        stdin=subprocess.DEVNULL,
    )
    listener.close()
    atexit.register(server.wait)
    atexit.register(server.kill)
    return str(interpreter)


def use(interpreter: str) -> None:
    """Set the interpreter that trainings of this process, a fork of the node server, use for the program."""
    from components.trainer import export_check

    export_check.sys = SimpleNamespace(executable=interpreter)


def call(interpreter: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; its trainings start the program with this interpreter."""
    use(interpreter)
    return function(*arguments)


def _serve(listener: socket.socket) -> None:
    import_for_predictions()
    gc.freeze()
    # The kernel reaps the forks.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if not os.fork():
            _run(connection)
        connection.close()


def _run(connection: socket.socket) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, files, *_ = socket.recv_fds(connection, 1, 3)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        with connection.makefile() as text:
            module, environment = json.load(text)
        assert module in _PROGRAMS
        os.environ.update(environment)
        runpy.run_module(module, run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # The client may have been killed.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            connection.sendall(bytes([code]))
        os._exit(code)


if __name__ == "__main__":
    signal_at_parents_death(signal.SIGKILL, parent=int(sys.argv[2]))
    _serve(socket.socket(fileno=int(sys.argv[1])))
