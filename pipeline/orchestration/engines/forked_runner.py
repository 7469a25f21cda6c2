"""A Beam runner for this machine whose workers are forked, so that none has to import anything.

Beam's `multi_processing` starts a Python interpreter for each worker, which imports Beam, TFX and TensorFlow for ten
seconds before its first element; the threads of `multi_threading` share one interpreter's lock. Here the node's
process, which has imported everything, forks a fork server before it has any thread, and that forks a worker whenever
Beam requests one. The workers use Beam's Fn API like any others.
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
from typing import Any

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from components.compat import beam as compat
from components.processes import exit_now, signal_at_parents_death

_MAX_MESSAGE_BYTES = 1 << 20
"""Bytes of a message to the fork server."""


class WorkerForkServer:
    """A process that forks workers. Create it while this process has no threads."""

    def __init__(self) -> None:
        self._socket, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._closed = False
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._process = os.fork()
        if not self._process:
            self._socket.close()
            _in_child(parent, lambda: _fork_on_request(child_end))
        child_end.close()
        threading.Thread(target=self._watch, name="watch workers", daemon=True).start()

    def start(self, worker: dict[str, str]) -> None:
        """Forks a worker; `worker` is the environment that Beam's harness reads its addresses and options from."""
        self._socket.send(pickle.dumps(worker))

    def close(self) -> None:
        """Waits until every worker has ended."""
        self._closed = True
        self._socket.shutdown(socket.SHUT_WR)
        os.waitpid(self._process, 0)

    def _watch(self) -> None:
        """Ends this process if a worker or the fork server is killed: Beam would wait for its answer forever."""
        signum = self._socket.recv(_MAX_MESSAGE_BYTES)
        if signum:
            logging.critical("a worker of Beam was killed by signal %s; out of memory?", signum.decode())
        elif not self._closed:
            logging.critical("the process that forks Beam's workers was killed; out of memory?")
        else:
            return
        exit_now(1)


class ForkedRunner(compat.WorkersRunner):
    """Runs a pipeline in `--direct_num_workers` forked workers; create it while there are no threads."""

    def __init__(self) -> None:
        self._fork_server = WorkerForkServer()
        super().__init__()

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Runs as Beam's own runner does; the workers have ended when it returns.

        Args:
          pipeline: the pipeline.
          options: the pipeline's.
        """
        global _fork_server
        _fork_server = self._fork_server
        try:
            return self.run_in(
                _environment(b""), options.view_as(DirectOptions).direct_num_workers or 1, pipeline, options
            )
        finally:
            self._fork_server.close()


_fork_server: WorkerForkServer
"""The fork server of the pipeline that runs in this process."""


class _Handler(compat.ProcessHandler):
    """Beam's side of one worker."""

    def start_worker(self) -> None:
        _fork_server.start(self.harness_environment())


_environment = compat.register_workers("tfx-pipeline:env:forked:v1", _Handler)


def _fork_on_request(messages: socket.socket) -> None:
    """Forks a worker for each message, and reports one that is killed, until the socket closes and all have ended."""
    parent = os.getpid()
    workers: dict[int, int] = {}
    events = select.poll()
    events.register(messages, select.POLLIN)
    more = True
    while more or workers:
        for ready, _ in events.poll():
            if ready in workers:
                events.unregister(ready)
                _, status = os.waitpid(workers.pop(ready), 0)
                os.close(ready)
                if os.WIFSIGNALED(status):
                    messages.send(str(os.WTERMSIG(status)).encode())
            elif message := messages.recv(_MAX_MESSAGE_BYTES):
                process = os.fork()
                if not process:
                    messages.close()
                    worker = pickle.loads(message)  # noqa: S301 - from our own parent
                    _in_child(parent, functools.partial(compat.run_harness, worker))
                ended = os.pidfd_open(process)
                workers[ended] = process
                events.register(ended, select.POLLIN)
            else:
                events.unregister(messages)
                more = False


def _in_child(parent: int, do: Callable[[], None]) -> None:
    """Calls a function in a forked process, and exits."""
    code = 1
    try:
        signal_at_parents_death(signal.SIGKILL, parent)
        do()
        code = 0
    except BaseException:
        logging.exception("a worker ended")
    finally:
        exit_now(code)
