"""A fork server for Beam workers, so that the workers do not import anything.

Beam starts a Python interpreter for each worker, which imports Beam, TFX and TensorFlow for ten seconds before it
processes the first element. Here, a process that has imported everything forks a fork server before it starts threads,
and the fork server forks a worker on request. The workers use Beam's Fn API as usual.
"""

from __future__ import annotations

import functools
import logging
import pickle
import select
import socket
import threading
from collections.abc import Callable

from components.base.child_process import ChildProcess
from components.base.processes import exit_now

_MAX_MESSAGE_BYTES = 1 << 20
"""Maximum size of a message to or from the fork server."""

CONNECTED = "connected"
"""Event: a worker has connected to the runner."""
WORKING = "working"
"""Event: a worker has received its first instruction."""

Work = Callable[[bytes, Callable[[str], None]], None]
"""Function that a worker calls with its request. It may report CONNECTED and WORKING by the second argument."""


class WorkerForkServer:
    """Forks workers on request. Create it after all imports and before this process starts threads.

    Args:
      work: Function that a worker calls.
      on_event: Called in a thread with the number of a worker, and CONNECTED, WORKING, or its exit code as
        `ChildProcess.wait` returns it.
    """

    def __init__(self, work: Work, on_event: Callable[[int, str | int], None]) -> None:
        self._socket, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._closed = False
        self._process = ChildProcess(_fork_on_request, child_end, work)
        child_end.close()
        threading.Thread(target=self._watch, args=(on_event,), name="watch workers", daemon=True).start()

    def start(self, number: int, request: bytes) -> None:
        """Fork a worker.

        Args:
          number: Number of the worker, which identifies it in events.
          request: Argument for `work`.
        """
        self._socket.send(pickle.dumps((number, request)))

    def kill(self, number: int) -> None:
        """Kill a worker unless it has ended."""
        self._socket.send(pickle.dumps((number, None)))

    def close(self) -> None:
        """Wait until every worker has ended."""
        self._closed = True
        self._socket.shutdown(socket.SHUT_WR)
        self._process.wait()

    def _watch(self, on_event: Callable[[int, str | int], None]) -> None:
        """Pass events on to `on_event`; end this process if the fork server is killed, because workers need it."""
        while message := self._socket.recv(_MAX_MESSAGE_BYTES):
            on_event(*pickle.loads(message))  # noqa: S301 - sent by child processes
        if not self._closed:
            logging.critical("the process that forks Beam's workers was killed; out of memory?")
            exit_now(1)


def _fork_on_request(messages: socket.socket, work: Work) -> None:
    """Fork and kill workers on request and report their ends, until the socket is closed and all workers have ended."""
    workers: dict[int, tuple[int, ChildProcess]] = {}
    events = select.poll()
    events.register(messages, select.POLLIN)
    more = True
    while more or workers:
        for ready, _ in events.poll():
            if ready in workers:
                events.unregister(ready)
                number, worker = workers.pop(ready)
                messages.send(pickle.dumps((number, worker.wait())))
            elif message := messages.recv(_MAX_MESSAGE_BYTES):
                number, request = pickle.loads(message)  # noqa: S301 - sent by the parent process
                if request is None:
                    for worker_number, worker in workers.values():
                        if worker_number == number:
                            worker.kill()
                    continue
                worker = ChildProcess(work, request, functools.partial(_report, messages, number))
                workers[worker.pidfd] = (number, worker)
                events.register(worker.pidfd, select.POLLIN)
            else:
                events.unregister(messages)
                more = False


def _report(messages: socket.socket, number: int, event: str) -> None:
    messages.send(pickle.dumps((number, event)))
