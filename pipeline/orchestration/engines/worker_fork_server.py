"""A fork server for Beam workers, so that the workers do not import anything.

Beam starts a Python interpreter for each worker, which imports Beam, TFX and TensorFlow for ten seconds before it
processes the first element. Here, a process that has imported everything forks a fork server before it starts threads,
and the fork server forks a worker on request. The workers use Beam's Fn API as usual.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from components.base.processes import exit_now, signal_at_parents_death

_MAX_MESSAGE_BYTES = 1 << 20
"""Maximum size of a message to or from the fork server."""

CONNECTED = "connected"
"""Event: a worker has connected to the runner."""
WORKING = "working"
"""Event: a worker has received its first instruction."""

Work = Callable[[bytes, Callable[[str], None]], None]
"""Function that a worker calls with its request. It may report CONNECTED and WORKING by the second argument."""


@dataclass(frozen=True)
class Ended:
    """Event: a worker has ended.

    Attributes:
      signum: Number of the signal that killed the worker; 0 if it has exited.
      code: Exit code of the worker; 0 if it was killed.
    """

    signum: int
    code: int


class WorkerForkServer:
    """Forks workers on request. Create it after all imports and before this process starts threads.

    Args:
      work: Function that a worker calls.
      on_event: Called in a thread with the number of a worker, and CONNECTED, WORKING or Ended.
    """

    def __init__(self, work: Work, on_event: Callable[[int, str | Ended], None]) -> None:
        self._socket, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._closed = False
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._process = os.fork()
        if not self._process:
            self._socket.close()
            _call_and_exit(parent, lambda: _fork_on_request(child_end, work))
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
        os.waitpid(self._process, 0)

    def _watch(self, on_event: Callable[[int, str | Ended], None]) -> None:
        """Pass events on to `on_event`; end this process if the fork server is killed, because workers need it."""
        while message := self._socket.recv(_MAX_MESSAGE_BYTES):
            on_event(*pickle.loads(message))  # noqa: S301 - sent by child processes
        if not self._closed:
            logging.critical("the process that forks Beam's workers was killed; out of memory?")
            exit_now(1)


def _fork_on_request(messages: socket.socket, work: Work) -> None:
    """Fork and kill workers on request and report their ends, until the socket is closed and all workers have ended."""
    parent = os.getpid()
    workers: dict[int, tuple[int, int]] = {}
    events = select.poll()
    events.register(messages, select.POLLIN)
    more = True
    while more or workers:
        for ready, _ in events.poll():
            if ready in workers:
                events.unregister(ready)
                number, process = workers.pop(ready)
                _, status = os.waitpid(process, 0)
                os.close(ready)
                signum, code = (os.WTERMSIG(status), 0) if os.WIFSIGNALED(status) else (0, os.WEXITSTATUS(status))
                messages.send(pickle.dumps((number, Ended(signum, code))))
            elif message := messages.recv(_MAX_MESSAGE_BYTES):
                number, request = pickle.loads(message)  # noqa: S301 - sent by the parent process
                if request is None:
                    for worker_number, process in workers.values():
                        if worker_number == number:
                            os.kill(process, signal.SIGKILL)
                    continue
                process = os.fork()
                if not process:
                    report = functools.partial(_report, messages, number)
                    _call_and_exit(parent, functools.partial(work, request, report))
                # The descriptor becomes readable when the process ends.
                descriptor = os.pidfd_open(process)
                workers[descriptor] = (number, process)
                events.register(descriptor, select.POLLIN)
            else:
                events.unregister(messages)
                more = False


def _report(messages: socket.socket, number: int, event: str) -> None:
    messages.send(pickle.dumps((number, event)))


def _call_and_exit(parent: int, function: Callable[[], None]) -> None:
    """Call a function in a forked process, then exit."""
    code = 1
    try:
        signal_at_parents_death(signal.SIGKILL, parent)
        function()
        code = 0
    except BaseException:
        logging.exception("a worker failed")
    finally:
        exit_now(code)
