"""Conversion between TensorProto messages and NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.serving.server.errors import InvalidRequestError

_STRING = tf.string.as_datatype_enum
_MAX_RANK = 32
"""NumPy supports no more. The product of the million sizes that fit into a message would take minutes."""
_MAX_REPEATED = 1 << 20
"""Elements. A message of a few bytes can declare a tensor of any size that repeats one value."""


def from_proto(proto: Any) -> npt.NDArray[Any]:
    """Convert a TensorProto; strings become bytes in an array of objects.

    Raises:
      InvalidRequestError: the content does not match the declared shape or dtype.
    """
    dimensions = proto.tensor_shape.dim
    sizes = [dimension.size for dimension in dimensions[:_MAX_RANK]]
    if proto.tensor_shape.unknown_rank or len(dimensions) > _MAX_RANK or min(sizes, default=0) < 0:
        raise InvalidRequestError(f"a tensor of {len(dimensions)} dimensions and shape {sizes} is not valid")
    if proto.dtype == _STRING and sizes == [len(proto.string_val)] and not proto.tensor_content:
        # Serialized tf.Examples arrive like this; make_ndarray would take several times as long.
        return np.array([*proto.string_val], object)
    count = math.prod(sizes)
    if count > _MAX_REPEATED and count > proto.ByteSize():
        raise InvalidRequestError(
            f"a tensor of shape {sizes}: expected {count} elements, received {proto.ByteSize()} bytes"
        )
    try:
        array: npt.NDArray[Any] = tf.make_ndarray(proto)
    except (KeyError, OverflowError, TypeError, ValueError, IndexError) as error:
        raise InvalidRequestError(f"a tensor of dtype {proto.dtype} and shape {sizes}: {error}") from error
    return array


def to_proto(array: npt.NDArray[Any], proto: Any) -> None:
    """Write an array into an empty TensorProto; numbers as raw bytes, which are fast to read."""
    if array.dtype == object:
        proto.dtype = _STRING
        proto.string_val.extend(array.ravel().tolist())
    else:
        proto.dtype = tf.dtypes.as_dtype(array.dtype).as_datatype_enum
        proto.tensor_content = array.tobytes()
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
