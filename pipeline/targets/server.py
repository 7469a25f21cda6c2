"""Starts the process server: it imports TensorFlow and TFX once, and every node is a fork of it."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import IO

_ROOT = Path(__file__).parents[2]
_CONTEXT = multiprocessing.get_context("forkserver")
_PRELOAD = "pipeline.targets.preload"


def start_server() -> None:
    """Begins the server's imports in the background, unless it runs already; call it from the main thread.

    The earlier it is called, the more of the ten seconds of imports pass beside other work.
    """
    # The main module too: a child would otherwise import it again before its own work.
    _CONTEXT.set_forkserver_preload(["__main__", _PRELOAD])
    with _environment(_output().fileno()), _held_back(signal.SIGINT):
        forkserver.ensure_running()


def server_output() -> bytes:
    """What the server, and children that could not yet write to their own logs, have printed so far."""
    return os.pread(_output().fileno(), 1 << 20, 0)


def context() -> multiprocessing.context.ForkServerContext:
    """The multiprocessing context whose processes are forks of the server."""
    return _CONTEXT


@functools.cache
def _output() -> IO[bytes]:
    """The file the server prints to: nameless, it lives as long as this process, and the run copies it when needed."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when this process ends
    atexit.register(file.close)
    return file


@contextmanager
def _environment(output: int) -> Iterator[None]:
    """What only the server is to find in its environment; children inherit it from there."""
    before = dict(os.environ)
    # Python 3.10's fork server does not take over sys.path, so it would not find this project.
    paths = [str(_ROOT), *filter(None, [before.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["PIPELINE_SERVER_OUTPUT"] = f"/proc/{os.getpid()}/fd/{output}"
    os.environ["PIPELINE_SERVER_PARENT"] = str(os.getpid())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _held_back(signum: signal.Signals) -> Iterator[None]:
    """Keeps a signal for later; a program started meanwhile does not get it until it asks for it.

    So Ctrl-C, which the terminal sends to every process, neither ends the server in its first instructions nor is
    lost to the run.
    """
    # Its own start would let go of the signal half-way.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signum})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
