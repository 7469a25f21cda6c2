"""A worker pool of Beam whose workers are forked, and that reports a worker that does not start.

An engine requests a worker from the pool beside it (Beam's EXTERNAL environment). Beam's own pool starts a Python
interpreter for each, answers at once, and leaves the engine waiting forever for a worker that has died or cannot
connect. Here the answer comes when the worker has connected, or has the reason why it has not; an engine takes that as
a failed task, but Prism ends with it (checked with 2.74). So a worker that is killed before its first instruction is
started again.

Source of the protocol: BeamFnExternalWorkerPool in beam_fn_api.proto.
"""

from __future__ import annotations

import itertools
import logging
import signal
import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from components.compat import beam as compat
from pipeline.orchestration.engines.worker_fork_server import CONNECTED, WORKING, Ended, WorkerForkServer

_THREADS = 256
"""Workers that can be starting at the same time: a request waits for its worker."""
_MAX_STARTS = 3
"""How often a worker is started that is killed before its first instruction."""


@dataclass
class _Worker:
    """One worker, including its restarts.

    Attributes:
      request: of the engine.
      peer: the connection of the request.
      started: becomes an error message when the worker has not connected, and "" when it has.
      starts: how often it has been started.
      is_working: whether it has received an instruction.
      is_stopped: whether the engine or the pool has stopped it.
    """

    request: beam_fn_api_pb2.StartWorkerRequest
    peer: str
    started: futures.Future[str] = field(default_factory=futures.Future)
    starts: int = 0
    is_working: bool = False
    is_stopped: bool = False

    @property
    def title(self) -> str:
        """For the log: its id, and where it connects."""
        return f"worker {self.request.worker_id} of {self.request.control_endpoint.url}"


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]
    """The service. Create it while this process has no threads, and after all imports.

    Args:
      start_seconds: how long a worker may take to connect.
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
        """Start a worker, and wait until it has connected; the response has an error if it has not."""
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
        """End a worker; one that was requested on another connection ends when its engine closes the control channel.

        The id alone does not say which worker is meant: each task manager numbers its own from 1.
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

    def _on_event(self, number: int, event: str | Ended) -> None:
        with self._lock:
            worker = self._workers[number]
            if event == CONNECTED:
                logging.info("%s has connected", worker.title)
                if not worker.started.done():
                    worker.started.set_result("")
            elif event == WORKING:
                worker.is_working = True
            elif isinstance(event, Ended):
                self._on_end(number, worker, event)

    def _on_end(self, number: int, worker: _Worker, ended: Ended) -> None:
        how = f"was killed by {signal.Signals(ended.signum).name}" if ended.signum else f"exited with code {ended.code}"
        logging.info("%s %s", worker.title, "was stopped" if worker.is_stopped else how)
        # The engine sees the end of a worker that has worked, and waits for one that it has not seen yet.
        if ended.signum and not (worker.is_stopped or worker.is_working) and worker.starts < _MAX_STARTS:
            self._start(number, worker)
            return
        if not worker.started.done():
            worker.started.set_result(f"{how} before it connected")
        del self._workers[number]


def serve(host: str, port: int, start_seconds: float, on_start: Callable[[str], None]) -> None:
    """Serve until this process ends.

    Args:
      host: the address to listen at.
      port: 0 for any free one.
      start_seconds: how long a worker may take to connect.
      on_start: called with host:port when the pool accepts requests.
    """
    pool = WorkerPool(start_seconds)
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS))
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    bound = server.add_insecure_port(f"{host}:{port}")
    server.start()
    on_start(f"{host}:{bound}")
    server.wait_for_termination()


def _work(request: bytes, report: Callable[[str], None]) -> None:
    environment = compat.pool_environment(beam_fn_api_pb2.StartWorkerRequest.FromString(request))
    compat.run_harness(environment, lambda: report(CONNECTED), lambda: report(WORKING))
