"""Starts the server of the serving check in a process without threads; prints that the model is loaded."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import grpc
from tensorflow_serving.apis import model_service_pb2_grpc

from components.base.child_process import WaitingProcess, is_single_threaded
from components.serving import executor, server_process
from components.serving.local_server_runner import LocalServerRunner

_SECONDS = 60


def main(arguments: Sequence[str]) -> int:
    """Serve the model in a folder, and stop."""
    [model] = arguments
    assert is_single_threaded()
    server = WaitingProcess(server_process.__name__, fork=True)
    runner = LocalServerRunner(model, "line", server)
    runner.Start()
    deadline = time.time() + _SECONDS
    runner.WaitUntilRunning(deadline)
    with grpc.insecure_channel(runner.GetEndpoint()) as channel:
        executor._wait_until_loaded(runner, model_service_pb2_grpc.ModelServiceStub(channel), "line", deadline)
    assert server.poll() is None
    runner.Stop()
    assert server.poll() == 0
    sys.stdout.write("loaded\n")
    return 0
