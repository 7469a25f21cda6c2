"""Read several parts of files in parallel, so that the latency of remote files is hidden."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

READERS = 4
"""Number of parts that are read in parallel. More would hide a longer latency, but each part needs memory."""
T = TypeVar("T")
R = TypeVar("R")


def read_in_parallel(read: Callable[[T], R], parts: Iterable[T], readers: int = READERS) -> Iterator[R]:
    """Yield the results of a function in the order of its arguments, and call it ahead in other threads.

    At most `readers` results are in memory besides the yielded result.

    Args:
      read: Function that reads a part.
      parts: Arguments of the function.
      readers: Maximum number of calls in parallel.

    Raises:
      Exception: The first error of a call; later calls are cancelled.
    """
    pool = ThreadPoolExecutor(readers)
    pending: deque[Future[R]] = deque()
    try:
        for part in parts:
            pending.append(pool.submit(read, part))
            if len(pending) == readers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
