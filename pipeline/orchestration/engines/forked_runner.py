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
from apache_beam.portability.api import endpoints_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import GrpcWorkerHandler, WorkerHandler
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.transforms import environments
from google.protobuf import json_format, text_format

from components.processes import signal_at_parents_death

_URN = "tfx-pipeline:env:forked:v1"
_MAX_MESSAGE_BYTES = 1 << 20
"""Bytes of a message to the fork server."""


class WorkerForkServer:
    """A process that forks workers. Create it while this process has no threads."""

    def __init__(self) -> None:
        self._socket, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._closed = False
        _flush()
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
        _flush()
        os._exit(1)


class ForkedRunner(FnApiRunner):  # type: ignore[misc]
    """Runs a pipeline in `--direct_num_workers` forked workers; create it while there are no threads."""

    def __init__(self) -> None:
        self._fork_server = WorkerForkServer()
        super().__init__(default_environment=_Environment(environments.python_sdk_capabilities()))

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """As Beam's own runner; the workers have ended when it returns.

        Args:
          pipeline: the pipeline.
          options: the pipeline's.
        """
        direct = options.view_as(DirectOptions)
        # Beam's runner would warn that several workers need another running mode, which does not apply here.
        self._num_workers, direct.direct_num_workers = direct.direct_num_workers or 1, None
        _fork_servers[_URN] = self._fork_server
        try:
            return super().run_pipeline(pipeline, options)
        finally:
            self._fork_server.close()


_fork_servers: dict[str, WorkerForkServer] = {}
"""The fork server of the pipeline that runs in this process."""


@environments.Environment.register_urn(_URN, None)
class _Environment(environments.Environment):  # type: ignore[misc]
    """The environment of a pipeline whose workers are forked."""

    def to_runner_api_parameter(self, _: Any) -> tuple[str, bytes]:
        return _URN, b""

    @staticmethod
    def from_runner_api_parameter(_: Any, capabilities: Any, artifacts: Any, hints: Any, __: Any) -> _Environment:
        return _Environment(capabilities, artifacts, hints)


@WorkerHandler.register_environment(_URN, None)
class _Handler(GrpcWorkerHandler):  # type: ignore[misc]
    """Beam's side of one worker."""

    def __init__(self, _: Any, state: Any, provision_info: Any, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)

    def start_worker(self) -> None:
        address = endpoints_pb2.ApiServiceDescriptor(url=self.control_address)
        _fork_servers[_URN].start(
            {
                "WORKER_ID": self.worker_id,
                "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(address),
                "PIPELINE_OPTIONS": json_format.MessageToJson(self.provision_info.provision_info.pipeline_options),
            }
        )

    def stop_worker(self) -> None:
        """A worker ends when its connection does, which is closed by then."""


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
                    _in_child(parent, functools.partial(_work, worker))
                ended = os.pidfd_open(process)
                workers[ended] = process
                events.register(ended, select.POLLIN)
            else:
                events.unregister(messages)
                more = False


def _work(worker: dict[str, str]) -> None:
    _, harness, _ = sdk_worker_main.create_harness(worker)
    harness.run()


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
        _flush()
        os._exit(code)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
