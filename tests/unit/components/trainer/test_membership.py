"""Tests that a worker counts as present if its server answers; an open port is not enough."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from components.trainer.cluster import membership
from components.trainer.cluster.membership import Membership

METHOD = "/tensorflow.WorkerService/GetStatus"


class _Answering(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc is not typed
    """A gRPC handler that answers like a TensorFlow server when it is asked for its devices."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method != METHOD:
            return None
        self.asked.set()
        return grpc.unary_unary_rpc_method_handler(lambda request, _: request)


@pytest.mark.extended
def test_worker_joins_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_ANSWER_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as frozen, ThreadPoolExecutor(2) as pool:
        handler = _Answering()
        server = grpc.server(pool, handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        present_workers = Membership([f"127.0.0.1:{port}", f"127.0.0.1:{frozen.getsockname()[1]}"])
        assert present_workers.latest == frozenset()
        server.start()
        assert handler.asked.wait(30), "it is asked again and again"
        assert present_workers.ask() == {0}, "an open port is no answer"
        server.stop(None).wait()
        assert present_workers.ask() == frozenset()
