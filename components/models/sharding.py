"""Tables of ids under a strategy: only they are sharded, and only the rows of a batch are read.

A dense layer reads all of its kernel in every step, so shards of it would be concatenated again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

Partitioner = Callable[..., Sequence[int]]
"""(shape, dtype, axis) → number of shards along each axis, see tf.distribute.experimental.partitioners.Partitioner."""

_table: ContextVar[bool] = ContextVar("table", default=False)


@contextmanager
def table() -> Iterator[None]:
    """Mark the variables that are created in the block as tables of ids."""
    token = _table.set(True)
    try:
        yield
    finally:
        _table.reset(token)


def is_table() -> bool:
    """Whether variables that are created here are tables of ids."""
    return _table.get()


def for_tables_only(partitioner: Partitioner) -> Partitioner:
    """Return the same partitioner; variables that are not tables of ids get a single shard."""

    def shards(shape: tf.TensorShape, dtype: tf.DType, axis: int = 0) -> Sequence[int]:
        return partitioner(shape, dtype, axis) if is_table() else [1] * len(shape)

    return shards
