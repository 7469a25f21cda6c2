"""Shard only tables of IDs under a strategy, because a step reads only the rows of a batch from them.

A dense layer reads its whole kernel in every step, so shards of a kernel would have to be concatenated again.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

Partitioner = Callable[..., Sequence[int]]
"""Function (shape, dtype, axis) → number of shards per axis; see
tf.distribute.experimental.partitioners.Partitioner."""

_table: ContextVar[str | None] = ContextVar("table", default=None)


@contextmanager
def table(name: str = "") -> Iterator[None]:
    """Mark the variables that are created in the block as parts of a table of IDs.

    Args:
      name: Name of the table.
    """
    token = _table.set(name)
    try:
        yield
    finally:
        _table.reset(token)


def is_table() -> bool:
    """Return whether variables that are created now are tables of IDs."""
    return _table.get() is not None


def for_tables_only(partitioner: Callable[[str], Partitioner]) -> Partitioner:
    """Return a partitioner that divides tables of IDs, each in its way, and gives other variables a single shard.

    Args:
      partitioner: Function from the name of a table to its partitioner.
    """

    def shards(shape: tf.TensorShape, dtype: tf.DType, axis: int = 0) -> Sequence[int]:
        name = _table.get()
        return [1] * len(shape) if name is None else partitioner(name)(shape, dtype, axis)

    return shards


@contextmanager
def place_tables(begin: Callable[[str], AbstractContextManager[None]]) -> Iterator[None]:
    """Choose the ps of the tables of IDs that are created in the block, which is inside the scope of a strategy.

    Args:
      begin: Function from the name of a table to a context in which the strategy places the shards of a variable.
    """

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        name = _table.get()
        with contextlib.nullcontext() if name is None else begin(name):
            return next_creator(**options)

    with tf.variable_creator_scope(create):
        yield


def count_bytes_by_task(variables: Iterable[tf.Variable]) -> Counter[str]:
    """Count the bytes of variables, and of the shards of variables, by the task that holds them, such as ps-0."""
    sizes: Counter[str] = Counter()
    for variable in variables:
        for part in getattr(variable, "variables", [variable]):
            device = tf.DeviceSpec.from_string(part.device)
            sizes[f"{device.job}-{device.task}"] += math.prod(part.shape) * part.dtype.size
    return sizes
