"""Tensors of the Open Inference Protocol: data types, values of JSON, and raw bytes.

Raw bytes are the elements in row-major order, little-endian; a string is preceded by its length as 4 bytes. gRPC sends
them in `raw_input_contents`, and REST after the JSON object. The protocol is described at
https://github.com/kserve/open-inference-protocol, the bytes of REST by the extension "binary tensor data".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.serving.server import json_codec
from components.serving.server.errors import RequestError
from components.serving.server.saved_model import MAX_RANK, Arrays, Signature, TensorSpec

_DTYPES: Mapping[str, tf.DType] = {
    "BOOL": tf.bool,
    "UINT8": tf.uint8,
    "UINT16": tf.uint16,
    "UINT32": tf.uint32,
    "UINT64": tf.uint64,
    "INT8": tf.int8,
    "INT16": tf.int16,
    "INT32": tf.int32,
    "INT64": tf.int64,
    "FP16": tf.float16,
    "BF16": tf.bfloat16,
    "FP32": tf.float32,
    "FP64": tf.float64,
    "BYTES": tf.string,
}
"""Data types of the protocol."""
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_LENGTH = struct.Struct("<I")
"""Length of a string in raw bytes."""


class Tensor(NamedTuple):
    """An input of a request.

    Attributes:
      datatype: Name of its data type, such as FP32.
      shape: Its sizes.
      data: Its elements: raw bytes, a list of JSON values, or a one-dimensional array.
    """

    datatype: str
    shape: Sequence[Any]
    data: bytes | list[Any] | npt.NDArray[Any]


def describe(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
    """Return the name, data type and shape of inputs or outputs; the shape [-1] if it is unknown."""
    return [
        {"name": name, "datatype": _NAMES.get(dtype, dtype.name), "shape": [-1] if shape is None else list(shape)}
        for name, (dtype, shape) in specs.items()
    ]


def get_datatype(name: str, array: npt.NDArray[Any]) -> str:
    """Return the data type of an output; raise RequestError if the protocol does not have it."""
    dtype = tf.string if array.dtype == object else tf.dtypes.as_dtype(array.dtype)
    if dtype not in _NAMES:
        raise RequestError(f"output {name!r}: the protocol cannot represent {dtype.name}; request other outputs")
    return _NAMES[dtype]


def to_arrays(tensors: Mapping[str, Tensor], signature: Signature) -> Arrays:
    """Convert the inputs of a request to arrays.

    Args:
      tensors: Input name → tensor.
      signature: Signature that receives the inputs.

    Returns:
      Input name → array.

    Raises:
      RequestError: If data type, shape and elements of a tensor do not match.
    """
    return {name: _to_array(name, tensor, signature) for name, tensor in tensors.items()}


def _to_array(name: str, tensor: Tensor, signature: Signature) -> npt.NDArray[Any]:
    dtype = _DTYPES.get(tensor.datatype)
    if dtype is None:
        raise RequestError(f"input {name!r}: expected a datatype of {', '.join(_DTYPES)}, received {tensor.datatype!r}")
    spec = signature.inputs.get(name, TensorSpec(dtype, None))
    if spec.dtype != dtype and spec.dtype in _NAMES:
        raise RequestError(f"input {name!r}: expected the datatype {_NAMES[spec.dtype]}, received {tensor.datatype}")
    if isinstance(tensor.data, bytes):
        array = _from_raw(name, dtype, tensor.data)
    elif isinstance(tensor.data, list):
        missing = signature.pads and name in signature.inputs
        array = json_codec.to_array(name, tensor.data, TensorSpec(dtype, spec.shape), missing=missing)
    else:
        array = tensor.data
    shape = [*tensor.shape[: MAX_RANK + 1]]
    if len(shape) > MAX_RANK or any(type(size) is not int or not 0 <= size < 1 << 62 for size in shape):
        raise RequestError(f"input {name!r}: expected a shape of at most {MAX_RANK} sizes, received {shape}")
    if math.prod(shape) != array.size:
        raise RequestError(
            f"input {name!r}: expected {math.prod(shape)} elements for shape {shape}, received {array.size}"
        )
    try:
        return array.reshape(shape)
    except ValueError as error:
        # An empty array whose other sizes are beyond NumPy's limits.
        raise RequestError(f"input {name!r}: shape {shape}: {error}") from error


def _from_raw(name: str, dtype: tf.DType, content: bytes) -> npt.NDArray[Any]:
    if dtype == tf.string:
        return np.array(_split_strings(name, content), object)
    size = dtype.size
    if len(content) % size:
        raise RequestError(f"input {name!r}: expected a multiple of {size} bytes, received {len(content)}")
    if dtype == tf.bool:
        return np.frombuffer(content, np.uint8) != 0
    return np.frombuffer(content, dtype.as_numpy_dtype)


def _split_strings(name: str, content: bytes) -> list[bytes]:
    strings, start = [], 0
    while start < len(content):
        begin = start + _LENGTH.size
        length = _LENGTH.unpack_from(content, start)[0] if begin <= len(content) else 0
        start = begin + length
        if start > len(content):
            raise RequestError(f"input {name!r}: expected strings with their lengths, received another number of bytes")
        strings.append(content[begin:start])
    return strings


def to_raw(array: npt.NDArray[Any]) -> bytes:
    """Convert an output to raw bytes."""
    if array.dtype == object:
        return b"".join(_LENGTH.pack(len(value)) + value for value in array.ravel())
    return bytes(array.tobytes())


def to_values(name: str, array: npt.NDArray[Any]) -> list[Any]:
    """Convert an output to values of JSON, in row-major order; raise RequestError if a string is not UTF-8."""
    flat = array.ravel()
    if array.dtype == object:
        try:
            return [value.decode() for value in flat]
        except UnicodeDecodeError as error:
            text = f"output {name!r}: expected UTF-8 for JSON: {error}; request it with binary_data"
            raise RequestError(text) from error
    # NumPy converts elements of bfloat16 to a type of its own, which json cannot write.
    values: list[Any] = (flat.astype(np.float32) if get_datatype(name, array) == "BF16" else flat).tolist()
    return values
