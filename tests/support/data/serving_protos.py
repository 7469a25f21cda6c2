"""The messages of TensorFlow Serving's batching and monitoring files, which its Python package lacks.

The fields come from session_bundle_config.proto and monitoring_config.proto, in the order of these files.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

_FIELDS = {
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
    "MonitoringConfig": {"prometheus_config": ".tensorflow.serving.PrometheusConfig"},
}
_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {"bool": _FIELD.TYPE_BOOL, "string": _FIELD.TYPE_STRING, "int64": _FIELD.TYPE_INT64}


def message(name: str) -> Any:
    """Return an empty message: BatchingParameters or MonitoringConfig."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="serving.proto", package="tensorflow.serving", syntax="proto3", dependency=[wrappers_pb2.DESCRIPTOR.name]
    )
    for message_name, fields in _FIELDS.items():
        message = file.message_type.add(name=message_name)
        for number, (field, declared) in enumerate(fields.items(), start=1):
            kind = declared.removeprefix("repeated ")
            message.field.add(
                name=field,
                number=number,
                label=_FIELD.LABEL_OPTIONAL if kind == declared else _FIELD.LABEL_REPEATED,
                type=_TYPES.get(kind, _FIELD.TYPE_MESSAGE),
                type_name=kind if kind.startswith(".") else None,
            )
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"tensorflow.serving.{name}")
    # protobuf of the older TensorFlow line lacks GetMessageClass.
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)()
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)()
