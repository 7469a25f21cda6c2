"""Switches of gRPC's C library that are read from the environment when it is loaded."""

from __future__ import annotations

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
