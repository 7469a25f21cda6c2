"""Tables of ids under a strategy: they may be cut into shards, and a few of their rows are read without the rest.

A dense layer needs all of its kernel in every step, so its shards would only be joined again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Partitioner = Callable[..., Sequence[int]]
"""(shape, dtype, axis) → parts along each axis, as tf.distribute's parameter servers ask for it."""

_table: ContextVar[bool] = ContextVar("table", default=False)


@contextmanager
def table() -> Iterator[None]:
    """The variables that are made inside are tables."""
    token = _table.set(True)
    try:
        yield
    finally:
        _table.reset(token)


def of_tables(partitioner: Partitioner) -> Partitioner:
    """The same partitioner, for tables alone."""

    def parts(shape: Any, dtype: Any, axis: int = 0) -> Sequence[int]:
        return partitioner(shape, dtype, axis) if _table.get() else [1] * len(shape)

    return parts


def here(variable: Any) -> Any:
    """This replica's copy of a variable, for reading some of its rows.

    A mirrored variable has no sparse read of its own: tf.gather and tf.nn.embedding_lookup would first copy all of it.
    """
    return variable._get() if hasattr(variable, "_get") else variable
