"""Environment variables that gRPC's C library reads when it is loaded, and the status of TensorFlow servers."""

from __future__ import annotations

import functools
import struct
from typing import Any

FAIL_FAST = {"GRPC_FAIL_FAST": "use_caller"}
"""Makes a call to a task that has exited fail at once, instead of waiting until the task comes back.

Without this variable, TensorFlow sets `wait_for_ready` on its calls. TensorFlow's guide on parameter server training
recommends the variable, but gRPC does not document it. Checked with TensorFlow 2.16 and 2.21.
"""

OLDER_POLLING = {"GRPC_EXPERIMENTS": "-event_engine_listener"}
"""Makes a Python server poll its sockets without gRPC's event engine, which takes 10 % less CPU time per request.

The experiments of gRPC's C library are not documented. Checked with grpcio 1.85; `python -m benchmarks.serving`
measured the figure.
"""


def close_context(address: str, context: int, seconds: float) -> bool:
    """Close the context of a client of a TensorFlow server, so that its variables, datasets and functions are freed.

    A client closes its contexts when it ends, but not if it is killed. This function calls `CloseContext` of
    eager_service.proto, whose request has the fields `fixed64 context_id = 1` and `fixed64 context_view_id = 2`. The
    server ignores a request with an older view than its own, hence the large number, and accepts an unknown context.
    Checked with TensorFlow 2.16.

    Args:
      address: Address of the server as `host:port`.
      context: ID of the context, which `components.compat.coordinator.find_context` returns to the client.
      seconds: Time limit.

    Returns:
      Whether the server has answered.
    """
    import grpc

    request = struct.pack("<BQBQ", 0x09, context, 0x11, 1 << 62)
    with grpc.insecure_channel(address, TaskStatus.OPTIONS) as channel:
        try:
            channel.unary_unary("/tensorflow.eager.EagerService/CloseContext")(request, timeout=seconds)
        except grpc.RpcError:
            return False
    return True


class TaskStatus:
    """Checks whether a TensorFlow server answers.

    TensorFlow can check only servers that the process is connected to; for other servers, it waits. This class
    therefore calls `GetStatus` of worker_service.proto, as TensorFlow does to ask a server for its devices. The request
    may be empty. An open port is not sufficient, because the kernel also accepts connections for a frozen process.
    Checked with TensorFlow 2.16 and 2.21.

    Args:
      address: Address of the server as `host:port`.
    """

    _METHOD = "/tensorflow.WorkerService/GetStatus"
    # Reconnect every second, so that a server that has just started is found soon. gRPC's maximum is two minutes.
    OPTIONS = (("grpc.max_reconnect_backoff_ms", 1000), ("grpc.enable_http_proxy", 0))

    def __init__(self, address: str) -> None:
        self._address = address

    def answers(self, seconds: float) -> bool:
        """Return whether the server answers within a number of seconds."""
        import grpc

        try:
            self._call(b"", timeout=seconds)
        except grpc.RpcError:
            return False
        return True

    @functools.cached_property
    def _call(self) -> Any:
        import grpc

        return grpc.insecure_channel(self._address, self.OPTIONS).unary_unary(self._METHOD)
