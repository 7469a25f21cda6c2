"""The messages of TensorFlow Serving's batching and monitoring files, which its Python package lacks.

The fields come from session_bundle_config.proto and monitoring_config.proto, in the order of these files.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import wrappers_pb2

from components.compat.protobuf import create_messages

_MESSAGES = create_messages(
    "tensorflow.serving",
    {
        "BatchingParameters": {
            "max_batch_size": ".google.protobuf.Int64Value",
            "batch_timeout_micros": ".google.protobuf.Int64Value",
            "max_enqueued_batches": ".google.protobuf.Int64Value",
            "num_batch_threads": ".google.protobuf.Int64Value",
            "thread_pool_name": ".google.protobuf.StringValue",
            "allowed_batch_sizes": "repeated int64",
            "pad_variable_length_inputs": "bool",
        },
        "PrometheusConfig": {"enable": "bool", "path": "string"},
        "MonitoringConfig": {"prometheus_config": "PrometheusConfig"},
    },
    imports=[wrappers_pb2.DESCRIPTOR],
)


def message(name: str) -> Any:
    """Return an empty message: BatchingParameters or MonitoringConfig."""
    return _MESSAGES[name]()
