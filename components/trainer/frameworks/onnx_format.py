"""Reads ONNX files: the part of the format that networks need, without the package `onnx`.

The numbers of the fields are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from components.base.errors import InputError

_DTYPES = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
}
"""Number of a data type in ONNX → dtype."""
_FLOAT, _INT32, _INT64, _STRING, _BYTES, _DOUBLE, _MESSAGE = 2, 5, 3, 9, 12, 1, 11
"""Types of fields in protocol buffers."""
_ONE, _MANY = 1, 3
_FIELDS: dict[str, list[tuple[str, int, int, int, str | None]]] = {
    "Model": [("graph", 7, _MESSAGE, _ONE, "Graph")],
    "Graph": [
        ("node", 1, _MESSAGE, _MANY, "Node"),
        ("initializer", 5, _MESSAGE, _MANY, "Tensor"),
        ("input", 11, _MESSAGE, _MANY, "Value"),
        ("output", 12, _MESSAGE, _MANY, "Value"),
    ],
    "Node": [
        ("input", 1, _STRING, _MANY, None),
        ("output", 2, _STRING, _MANY, None),
        ("op_type", 4, _STRING, _ONE, None),
        ("attribute", 5, _MESSAGE, _MANY, "Attribute"),
        ("domain", 7, _STRING, _ONE, None),
    ],
    "Attribute": [
        ("name", 1, _STRING, _ONE, None),
        ("f", 2, _FLOAT, _ONE, None),
        ("i", 3, _INT64, _ONE, None),
        ("s", 4, _BYTES, _ONE, None),
        ("t", 5, _MESSAGE, _ONE, "Tensor"),
        ("floats", 7, _FLOAT, _MANY, None),
        ("ints", 8, _INT64, _MANY, None),
        ("type", 20, _INT32, _ONE, None),
    ],
    "Tensor": [
        ("dims", 1, _INT64, _MANY, None),
        ("data_type", 2, _INT32, _ONE, None),
        ("float_data", 4, _FLOAT, _MANY, None),
        ("int32_data", 5, _INT32, _MANY, None),
        ("int64_data", 7, _INT64, _MANY, None),
        ("name", 8, _STRING, _ONE, None),
        ("raw_data", 9, _BYTES, _ONE, None),
        ("double_data", 10, _DOUBLE, _MANY, None),
        ("data_location", 14, _INT32, _ONE, None),
    ],
    "Value": [("name", 1, _STRING, _ONE, None)],
}
"""Message → its fields: name, number, type, whether it is repeated, type of a message."""
_ATTRIBUTES = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints"}
"""Type of an attribute → field with its value."""


def parse(content: bytes) -> Any:
    """Parse a model; return its graph, a message with the fields of `Graph`.

    Raises:
      InputError: If the bytes are not an ONNX model.
    """
    model = _create_message_class()()
    try:
        model.ParseFromString(content)
    except Exception as error:
        raise _refuse(f"bytes that cannot be parsed ({error})") from error
    if not model.graph.node:
        raise _refuse("a model without nodes")
    return model.graph


def read_tensor(tensor: Any) -> npt.NDArray[Any]:
    """Return the values of a tensor.

    Raises:
      InputError: If its dtype is not supported, or its values are in another file.
    """
    if tensor.data_location or tensor.data_type not in _DTYPES:
        received = "values in another file" if tensor.data_location else f"data type {tensor.data_type}"
        raise _refuse(f"the tensor {tensor.name!r} with {received}")
    dtype, shape = np.dtype(_DTYPES[tensor.data_type]), tuple(tensor.dims)
    if tensor.raw_data:
        return np.frombuffer(tensor.raw_data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    values = next((values for values in _list_values(tensor) if len(values)), ())
    return np.array(values, dtype).reshape(shape)


def read_attributes(node: Any) -> dict[str, Any]:
    """Return the attributes of a node by name; a tensor as an array."""
    attributes = {}
    for attribute in node.attribute:
        value = getattr(attribute, _ATTRIBUTES.get(attribute.type, "s"))
        value = read_tensor(value) if attribute.type == 4 else value
        attributes[attribute.name] = list(value) if attribute.type in (6, 7) else value
    return attributes


def _list_values(tensor: Any) -> list[Any]:
    return [tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data]


@functools.cache
def _create_message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="onnx_networks.proto", package="onnx_networks", syntax="proto2")
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for name, number, kind, label, type_name in fields:
            field = described.field.add(name=name, number=number, type=kind, label=label)
            if type_name:
                field.type_name = f".onnx_networks.{type_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName("onnx_networks.Model")
    # protobuf 4 replaced the method of a factory by a function.
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


def _refuse(received: str) -> InputError:
    return InputError(
        f"model.train: expected an ONNX model with its weights, received {received}",
        "export it with torch.onnx.export(..., dynamo=False), and return the bytes of the file",
    )
