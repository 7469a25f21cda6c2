"""Shard only tables of IDs under a strategy, because a step reads only the rows of a batch from them.

A dense layer reads its whole kernel in every step, so shards of a kernel would have to be concatenated again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

Partitioner = Callable[..., Sequence[int]]
"""Function (shape, dtype, axis) → number of shards per axis; see
tf.distribute.experimental.partitioners.Partitioner."""

_table: ContextVar[bool] = ContextVar("table", default=False)


@contextmanager
def table() -> Iterator[None]:
    """Mark the variables that are created in the block as tables of IDs."""
    token = _table.set(True)
    try:
        yield
    finally:
        _table.reset(token)


def is_table() -> bool:
    """Return whether variables that are created now are tables of IDs."""
    return _table.get()


def for_tables_only(partitioner: Partitioner) -> Partitioner:
    """Wrap a partitioner so that variables other than tables of IDs get a single shard."""

    def shards(shape: tf.TensorShape, dtype: tf.DType, axis: int = 0) -> Sequence[int]:
        return partitioner(shape, dtype, axis) if is_table() else [1] * len(shape)

    return shards


def count_bytes_by_task(variables: Iterable[tf.Variable]) -> Counter[str]:
    """Count the bytes of variables, and of the shards of variables, by the task that holds them, such as ps-0."""
    sizes: Counter[str] = Counter()
    for variable in variables:
        for part in getattr(variable, "variables", [variable]):
            device = tf.DeviceSpec.from_string(part.device)
            sizes[f"{device.job}-{device.task}"] += math.prod(part.shape) * part.dtype.size
    return sizes
