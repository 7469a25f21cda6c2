"""IDs with weights in one int64 tensor, so that a feature with weights remains a single tensor.

The low 31 bits contain the ID, and the bits above them the weight in units of 2**-30. Padding is 0: the ID 0 with the
weight 0.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

_IDS = 1 << 31
_ONE = 1 << 30
AnyIds = TypeVar("AnyIds", tf.Tensor, npt.NDArray[np.int64])


def pack(ids: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Pack IDs, int64 below 2**31, with their weights, float32 in [0, 1]; int64, same shape."""
    units = tf.round(tf.cast(weights, tf.float64) * _ONE)
    return ids + tf.cast(units, tf.int64) * _IDS


def unpack_ids(packed: AnyIds) -> AnyIds:
    """Return the IDs of a tensor or of an array that `pack` returned; int64, same shape."""
    return packed % _IDS


def unpack(packed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the IDs, int64, and the weights, float32, of a tensor that `pack` returned; both of the same shape."""
    return unpack_ids(packed), tf.cast(packed // _IDS, tf.float32) / _ONE
