"""Tests for the worker pool: errors of workers that do not start, and the end of workers with the engine or pool."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import socket
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2

from tests.support.servers.beam_servers import Server, pool

pytestmark = [pytest.mark.both_lines, pytest.mark.extended]

SECONDS = 60


@dataclass
class Connection:
    """A worker's connection to the engine.

    Attributes:
      number: Number of the connection, counted from 0.
      worker: ID of the worker.
      instructions: Instructions to send to the worker. None closes the connection.
      answers: Answers of the worker.
    """

    number: int
    worker: str
    instructions: queue.Queue[Any] = field(default_factory=queue.Queue)
    answers: queue.Queue[Any] = field(default_factory=queue.Queue)


class Engine(beam_fn_api_pb2_grpc.BeamFnControlServicer):  # type: ignore[misc]
    """A fake engine that accepts the connections of workers."""

    def __init__(self) -> None:
        self.connected: queue.Queue[Connection] = queue.Queue()
        self.ended: queue.Queue[int] = queue.Queue()
        self._numbers = itertools.count()
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(self, self._server)
        self.address = f"localhost:{self._server.add_insecure_port('localhost:0')}"
        self._server.start()

    def Control(self, answers: Any, context: Any) -> Iterator[Any]:  # noqa: N802 - Beam's name
        connection = Connection(next(self._numbers), dict(context.invocation_metadata())["worker_id"])
        self.connected.put(connection)
        context.add_callback(lambda: self._end(connection))
        for instruction in iter(connection.instructions.get, None):
            yield instruction
            connection.answers.put(next(answers))

    def _end(self, connection: Connection) -> None:
        self.ended.put(connection.number)
        connection.instructions.put(None)

    def close(self) -> None:
        """Close all connections."""
        self._server.stop(0).wait()


@pytest.fixture
def engine() -> Iterator[Engine]:
    with contextlib.closing(Engine()) as server:
        yield server


@pytest.fixture(scope="module")
def shared_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pool(tmp_path_factory.mktemp("pools") / "pool") as server:
        yield server


@pytest.fixture
def workers(shared_pool: Server) -> Server:
    """Return the shared pool after the workers of earlier tests have ended."""
    assert not psutil.wait_procs(list_workers(shared_pool), SECONDS)[1]
    return shared_pool


def connect(server: Server) -> Any:
    """Return a stub with a new connection to the pool, as every environment of an engine has."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    return beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(grpc.insecure_channel(server.address, options))


def request_worker(stub: Any, address: str, worker: str = "1-1") -> Any:
    """Request a worker that connects to an address, and return a future of the response."""
    endpoint = endpoints_pb2.ApiServiceDescriptor(url=address)
    request = beam_fn_api_pb2.StartWorkerRequest(worker_id=worker, control_endpoint=endpoint)
    return stub.StartWorker.future(request, timeout=SECONDS)


def start_worker(stub: Any, engine: Engine, worker: str = "1-1") -> Connection:
    """Start a worker, and return its connection to the engine."""
    assert request_worker(stub, engine.address, worker).result().error == ""
    connection = engine.connected.get(timeout=SECONDS)
    assert connection.worker == worker
    return connection


def list_workers(server: Server) -> list[psutil.Process]:
    """Return the workers of a pool, which are the children of the pool's fork server."""
    [fork_server] = psutil.Process(server.pid).children()
    return fork_server.children()


def test_worker_connects_and_is_stopped(workers: Server, engine: Engine) -> None:
    stub = connect(workers)
    start_worker(stub, engine)
    [worker] = list_workers(workers)
    stub.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"))
    worker.wait(SECONDS)


def test_worker_that_cannot_connect_is_an_error(tmp_path: Any) -> None:
    with pool(tmp_path / "pool", start_seconds=1) as server, socket.create_server(("localhost", 0)) as silent_server:
        address = f"localhost:{silent_server.getsockname()[1]}"
        error = request_worker(connect(server), address).result().error
        assert error.startswith(f"worker 1-1 of {address} has not connected within 1 s: check that the pool's machine")
        assert not psutil.wait_procs(list_workers(server), SECONDS)[1]


def test_worker_that_is_killed_at_every_start_is_an_error(workers: Server) -> None:
    with socket.create_server(("localhost", 0)) as silent_server:
        address = f"localhost:{silent_server.getsockname()[1]}"
        response = request_worker(connect(workers), address)
        for _ in range(3):
            connection, _ = silent_server.accept()
            [worker] = list_workers(workers)
            assert not response.done()
            worker.kill()
            worker.wait(SECONDS)
            connection.close()
        assert f"worker 1-1 of {address} was killed by SIGKILL before it connected" in response.result().error


def test_worker_killed_before_its_first_instruction_is_restarted(workers: Server, engine: Engine) -> None:
    stub = connect(workers)
    start_worker(stub, engine)
    list_workers(workers)[0].kill()
    restarted = engine.connected.get(timeout=SECONDS)
    assert restarted.worker == "1-1"
    restarted.instructions.put(beam_fn_api_pb2.InstructionRequest(instruction_id="1", harness_monitoring_infos={}))
    assert restarted.answers.get(timeout=SECONDS).instruction_id == "1"
    # The pool does not restart a worker that has received an instruction, because the engine notices its loss.
    [worker] = list_workers(workers)
    worker.kill()
    worker.wait(SECONDS)
    assert start_worker(stub, engine, "2-1").number == restarted.number + 1


def test_worker_of_another_engine_with_the_same_id_continues(workers: Server, engine: Engine) -> None:
    first_stub, second_stub = connect(workers), connect(workers)
    first = start_worker(first_stub, engine)
    [worker] = list_workers(workers)
    second = start_worker(second_stub, engine)
    first_stub.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"))
    assert engine.ended.get(timeout=SECONDS) == first.number
    worker.wait(SECONDS)
    [remaining] = list_workers(workers)
    # The remaining worker ends when its engine closes the connection.
    second.instructions.put(None)
    assert engine.ended.get(timeout=SECONDS) == second.number
    remaining.wait(SECONDS)


def test_no_worker_outlives_the_pool(tmp_path: Any, engine: Engine) -> None:
    with pool(tmp_path / "pool") as server:
        start_worker(connect(server), engine)
        [worker] = list_workers(server)
        os.kill(server.pid, signal.SIGKILL)
        worker.wait(SECONDS)
