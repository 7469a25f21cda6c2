"""A process that forks Beam workers, so that none has to import anything.

Beam starts a Python interpreter for each worker, which imports Beam, TFX and TensorFlow for ten seconds before its
first element. Here a process that has imported everything forks a fork server before it has any thread, and that forks
a worker on request. The workers use Beam's Fn API like any others.
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
"""Bytes of a message to or from the fork server."""

CONNECTED = "connected"
"""The event of a worker that has reached the runner."""
WORKING = "working"
"""The event of a worker that has received its first instruction."""

Work = Callable[[bytes, Callable[[str], None]], None]
"""What a worker does with its request; it may call the second argument with CONNECTED and WORKING."""


@dataclass(frozen=True)
class Ended:
    """The event of a worker that has ended: the signal that killed it, or 0, and its exit code."""

    signum: int
    code: int


class WorkerForkServer:
    """Create it while this process has no threads, and after all imports.

    Args:
      work: what a worker does.
      on_event: called in a thread with a worker's number, and CONNECTED, WORKING or Ended.
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
            _in_child(parent, lambda: _fork_on_request(child_end, work))
        child_end.close()
        threading.Thread(target=self._watch, args=(on_event,), name="watch workers", daemon=True).start()

    def start(self, number: int, request: bytes) -> None:
        """Forks a worker.

        Args:
          number: of the worker, in its events.
          request: passed to `work`.
        """
        self._socket.send(pickle.dumps((number, request)))

    def kill(self, number: int) -> None:
        """Kills a worker, unless it has ended."""
        self._socket.send(pickle.dumps((number, None)))

    def close(self) -> None:
        """Wait until every worker has ended."""
        self._closed = True
        self._socket.shutdown(socket.SHUT_WR)
        os.waitpid(self._process, 0)

    def _watch(self, on_event: Callable[[int, str | Ended], None]) -> None:
        """Pass events on. Ends this process if the fork server is killed: nobody would start another worker."""
        while message := self._socket.recv(_MAX_MESSAGE_BYTES):
            on_event(*pickle.loads(message))  # noqa: S301 - from our own children
        if not self._closed:
            logging.critical("the process that forks Beam's workers was killed; out of memory?")
            exit_now(1)


def _fork_on_request(messages: socket.socket, work: Work) -> None:
    """Forks workers, kills them, and reports their ends, until the socket closes and all have ended."""
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
                number, request = pickle.loads(message)  # noqa: S301 - from our own parent
                if request is None:
                    for each, process in workers.values():
                        if each == number:
                            os.kill(process, signal.SIGKILL)
                    continue
                process = os.fork()
                if not process:
                    report = functools.partial(_report, messages, number)
                    _in_child(parent, functools.partial(work, request, report))
                ended = os.pidfd_open(process)
                workers[ended] = (number, process)
                events.register(ended, select.POLLIN)
            else:
                events.unregister(messages)
                more = False


def _report(messages: socket.socket, number: int, event: str) -> None:
    messages.send(pickle.dumps((number, event)))


def _in_child(parent: int, do: Callable[[], None]) -> None:
    """Call a function in a forked process, and exit."""
    code = 1
    try:
        signal_at_parents_death(signal.SIGKILL, parent)
        do()
        code = 0
    except BaseException:
        logging.exception("a worker ended")
    finally:
        exit_now(code)
