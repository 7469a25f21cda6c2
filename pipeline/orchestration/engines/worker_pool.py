"""A Beam worker pool whose workers are forked, and that reports workers that do not start.

In Beam's EXTERNAL environment, an engine requests workers from a pool on the same machine. Beam's own pool starts a
Python interpreter per worker and answers at once, so the engine waits forever for a worker that has died or cannot
connect. This pool answers when the worker has connected, or with the reason why it has not. The engine treats an error
as a failed task, except for Prism, which ends (checked with 2.74). Therefore the pool restarts a worker that is killed
before its first instruction.

Source of the protocol: BeamFnExternalWorkerPool in beam_fn_api.proto.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from components.base.processes import describe_exit
from components.compat import beam as compat
from pipeline.orchestration.engines.worker_fork_server import CONNECTED, WORKING, WorkerForkServer

_THREADS = 256
"""Maximum number of workers that start at the same time, because each request waits in a thread for its worker."""
_MAX_STARTS = 3
"""Maximum number of starts of a worker that is killed before its first instruction."""


@dataclass
class _Worker:
    """A requested worker, including its restarts.

    Attributes:
      request: The engine's request.
      peer: Connection on which the request arrived.
      started: Future that is set to "" when the worker has connected, or to an error message if it has not.
      starts: Number of starts so far.
      is_working: Whether the worker has received an instruction.
      is_stopped: Whether the engine or the pool has stopped the worker.
    """

    request: beam_fn_api_pb2.StartWorkerRequest
    peer: str
    started: futures.Future[str] = field(default_factory=futures.Future)
    starts: int = 0
    is_working: bool = False
    is_stopped: bool = False

    @property
    def title(self) -> str:
        """ID of the worker and address of its control service, for the log."""
        return f"worker {self.request.worker_id} of {self.request.control_endpoint.url}"


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]
    """The gRPC service of the pool. Create it after all imports and before this process starts threads.

    Args:
      start_seconds: Time limit for a worker to connect, in seconds.
    """

    def __init__(self, start_seconds: float) -> None:
        self._start_seconds = start_seconds
        self._lock = threading.Lock()
        self._workers: dict[int, _Worker] = {}
        self._numbers = itertools.count()
        self._fork_server = WorkerForkServer(_work, self._on_event)

    def StartWorker(  # noqa: N802 - Beam's name
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        """Start a worker, and wait until it has connected; if it does not connect, the response contains an error."""
        worker, number = _Worker(request, context.peer()), next(self._numbers)
        with self._lock:
            self._workers[number] = worker
            self._start(number, worker)
        try:
            error = worker.started.result(self._start_seconds)
        except futures.TimeoutError:
            with self._lock:
                worker.is_stopped = True
                self._fork_server.kill(number)
            error = f"has not connected within {self._start_seconds:g} s: check that the pool's machine reaches it"
        if error:
            error = f"{worker.title} {error}; see the log of the worker pool"
            logging.error("%s", error)
        return beam_fn_api_pb2.StartWorkerResponse(error=error)

    def StopWorker(  # noqa: N802 - Beam's name
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        """Kill a worker that was requested on the same connection.

        The ID alone does not identify a worker, because each task manager numbers its workers from 1. A worker that was
        requested on another connection ends when its engine closes the control channel.
        """
        with self._lock:
            for number, worker in self._workers.items():
                if (worker.request.worker_id, worker.peer) == (request.worker_id, context.peer()):
                    worker.is_stopped = True
                    self._fork_server.kill(number)
        return beam_fn_api_pb2.StopWorkerResponse()

    def _start(self, number: int, worker: _Worker) -> None:
        worker.starts += 1
        self._fork_server.start(number, worker.request.SerializeToString())

    def _on_event(self, number: int, event: str | int) -> None:
        with self._lock:
            worker = self._workers[number]
            if event == CONNECTED:
                logging.info("%s has connected", worker.title)
                if not worker.started.done():
                    worker.started.set_result("")
            elif event == WORKING:
                worker.is_working = True
            elif isinstance(event, int):
                self._on_end(number, worker, event)

    def _on_end(self, number: int, worker: _Worker, code: int) -> None:
        how = describe_exit(code) if code < 0 else f"exited with code {code}"
        logging.info("%s %s", worker.title, "was stopped" if worker.is_stopped else how)
        # The engine notices the end of a worker that has received an instruction, but would wait for any other worker.
        if code < 0 and not (worker.is_stopped or worker.is_working) and worker.starts < _MAX_STARTS:
            self._start(number, worker)
            return
        if not worker.started.done():
            worker.started.set_result(f"{how} before it connected")
        del self._workers[number]


def serve(host: str, port: int, start_seconds: float, on_start: Callable[[str], None]) -> None:
    """Serve until this process ends.

    Args:
      host: Address at which the pool listens.
      port: Port at which the pool listens. 0 means any free port.
      start_seconds: Time limit for a worker to connect, in seconds.
      on_start: Called with host:port when the pool accepts requests.
    """
    pool = WorkerPool(start_seconds)
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS))
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    bound_port = server.add_insecure_port(f"{host}:{port}")
    server.start()
    on_start(f"{host}:{bound_port}")
    server.wait_for_termination()


def _work(request: bytes, report: Callable[[str], None]) -> None:
    environment = compat.pool_environment(beam_fn_api_pb2.StartWorkerRequest.FromString(request))
    compat.run_harness(environment, lambda: report(CONNECTED), lambda: report(WORKING))
