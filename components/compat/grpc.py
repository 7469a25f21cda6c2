"""Switches that gRPC's C library reads from the environment when it is loaded; the status of a TensorFlow server."""

from __future__ import annotations

import functools
from typing import Any

FAIL_FAST = {"GRPC_FAIL_FAST": "use_caller"}
"""A call to a task that has exited fails at once instead of waiting for it to come back.

TensorFlow sets `wait_for_ready` on its calls unless this is set. Its guide on parameter server training recommends it;
gRPC does not document it. Checked with TensorFlow 2.16 and 2.21.
"""

OLDER_POLLING = {"GRPC_EXPERIMENTS": "-event_engine_listener"}
"""A Python server polls its sockets in the way of gRPC before its event engine: 10 % less CPU time per request.

The experiments of gRPC's C library are undocumented. Checked with grpcio 1.85; the figure is of
`python -m benchmarks.serving`.
"""


class TaskStatus:
    """Whether a TensorFlow server answers.

    TensorFlow has a check only for servers that a process is connected to, and it waits for the others. So this calls
    the method by which TensorFlow itself asks a server for its devices (`GetStatus` of worker_service.proto, whose
    request may be empty). An open port is not enough: the kernel opens connections to a frozen process, too. Checked
    with TensorFlow 2.16 and 2.21.

    Args:
      address: Host:port.
    """

    _METHOD = "/tensorflow.WorkerService/GetStatus"
    # A server that has just started is found within a second, not after gRPC's two minutes.
    _OPTIONS = (("grpc.max_reconnect_backoff_ms", 1000), ("grpc.enable_http_proxy", 0))

    def __init__(self, address: str) -> None:
        self._address = address

    def answers(self, seconds: float) -> bool:
        """Asks; returns whether there was an answer within this time."""
        import grpc

        try:
            self._call(b"", timeout=seconds)
        except grpc.RpcError:
            return False
        return True

    @functools.cached_property
    def _call(self) -> Any:
        import grpc

        return grpc.insecure_channel(self._address, self._OPTIONS).unary_unary(self._METHOD)
