"""The interpreter that loads an exported model, as a fork of a process that has imported TensorFlow, as it does.

Nearly every training of the tests starts it, and importing is most of its work. A real interpreter is started by
unit/components/trainer/test_export_check.py, and by runs that are not forks (`command_process`).

The process that converts models to TensorFlow Lite imports the same; unit/components/edge/test_conversion.py has both.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from components.base import child_process
from components.base.processes import signal_at_parents_death
from components.compat.tensorflow import import_for_predictions

_ROOT = Path(__file__).parents[3]
_MODULES = ("components.trainer.export_check_process", "components.edge.conversion_process")
# Send the environment and the three standard files to the server, and end as the fork ends.
_CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    socket.send_fds(connection, [b"-"], [0, 1, 2])
    connection.sendall(json.dumps([sys.argv[4:], dict(os.environ)]).encode())
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
    forked = " | ".join(_MODULES)
    interpreter.write_text(
        f'#!/bin/sh\ncase "$3" in {forked}) exec {client} "$@";; *) exec {sys.executable} "$@";; esac\n'
    )
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
    """Set the interpreter that trainings of this process, a fork of the node server, start."""
    child_process._PYTHON = interpreter


def call(interpreter: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; its trainings start this interpreter."""
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
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, files, *_ = socket.recv_fds(connection, 1, 3)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        with connection.makefile() as text:
            sys.argv[1:], environment = json.load(text)
        os.environ.update(environment)
        # The parent of this fork is the server.
        child_process.signal_at_parents_death = lambda *_: None
        child_process.exit_now = functools.partial(_exit, connection)
        child_process.main()
    except BaseException:
        traceback.print_exc()
        _exit(connection, 1)


def _exit(connection: socket.socket, code: int) -> NoReturn:
    # The client may have been killed.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        connection.sendall(bytes([code]))
    os._exit(code)


if __name__ == "__main__":
    signal_at_parents_death(signal.SIGKILL, parent=int(sys.argv[2]))
    _serve(socket.socket(fileno=int(sys.argv[1])))
