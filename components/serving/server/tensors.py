"""Tensors as gRPC sends them, to numpy and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from components.serving.server.refusal import invalid

_STRING = tf.string.as_datatype_enum
_DIMENSIONS = 32
"""A message can hold a million, whose product would take minutes; numpy knows no more than this."""
_FILLED = 1 << 20
"""Elements: a few bytes can claim a tensor of any size, filled with one value."""


def from_proto(proto: Any) -> Any:
    """A TensorProto as an array; texts as objects.

    Raises:
      RequestError: it does not hold what it says.
    """
    shape = proto.tensor_shape
    dimensions = shape.dim
    if proto.dtype == _STRING and len(dimensions) == 1 and not proto.tensor_content:
        # One by one in a list, as tf.Examples are sent.
        texts = proto.string_val
        if len(texts) == dimensions[0].size and not shape.unknown_rank:
            return np.array([*texts], object)
    sizes = [dimension.size for dimension in dimensions[:_DIMENSIONS]]
    if shape.unknown_rank or len(dimensions) > _DIMENSIONS or min(sizes, default=0) < 0:
        raise invalid(f"a tensor of {len(dimensions)} dimensions and shape {sizes} cannot be")
    count = math.prod(sizes)
    # An element that is there takes a byte at least.
    if count > _FILLED and count > proto.ByteSize():
        raise invalid(f"a tensor of shape {sizes}: expected {count} elements, received {proto.ByteSize()} bytes")
    try:
        if proto.dtype == _STRING and not proto.tensor_content:
            return _texts(proto.string_val, count).reshape(sizes)
        return tf.make_ndarray(proto)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise invalid(f"a tensor of dtype {proto.dtype} and shape {sizes}: {error}") from error


def _texts(given: Any, count: int) -> Any:
    # make_ndarray goes over them one by one, and fills with what is no bytes.
    flat = np.empty(count, object)
    flat[: len(given)] = given
    flat[len(given) :] = given[-1] if given else b""
    return flat


def put(array: Any, proto: Any) -> None:
    """Writes an array into a TensorProto that is empty; numbers as bytes, which costs nothing to read."""
    if array.dtype == object:
        proto.dtype = _STRING
        proto.string_val.extend(array.ravel().tolist())
    else:
        proto.dtype = tf.dtypes.as_dtype(array.dtype).as_datatype_enum
        proto.tensor_content = array.tobytes()
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
