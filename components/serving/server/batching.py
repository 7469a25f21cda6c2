"""Join concurrent requests into batches; every request receives only the outputs, or the error, for its rows."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np

from components.serving.server.saved_model import Arrays, Signature


class BatchLimits(NamedTuple):
    """Limits that decide when a batch starts.

    Attributes:
      rows: Maximum number of rows of a batch. A larger request becomes a batch by itself.
      timeout: Seconds that the first request waits for further requests while fewer than `concurrency` batches run.
      concurrency: Maximum number of batches of one signature that run at the same time.
    """

    rows: int
    timeout: float
    concurrency: int


class _Pending(NamedTuple):
    inputs: Arrays
    rows: int
    outputs: asyncio.Future[dict[str, Any]]


class Batcher:
    """Joins the requests of one signature.

    A batch starts when it is full, when its first request has waited for the timeout, or when the number of waiting
    requests reaches the number that the previous batch answered or left in the queue. By then all clients have sent
    their next request, so waiting longer would only add latency. A single client never waits.

    Args:
      signature: A signature whose `batches` is true.
      limits: Limits that decide when a batch starts.
      threads: Threads that run the model.
      observe: Function that is called with the number of rows of every batch.
    """

    def __init__(self, signature: Signature, limits: BatchLimits, threads: Executor, observe: Callable[[int], None]):
        self._signature, self._limits, self._threads, self._observe = signature, limits, threads, observe
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Pending] = []
        self._expected = 1
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Number of requests in the queue, which wait for their batch to start."""
        return len(self._queue)

    def run(self, inputs: Arrays) -> asyncio.Future[dict[str, Any]]:
        """Queue inputs that passed Signature.check(), and return a future of their outputs, name → array."""
        pending = _Pending(inputs, len(next(iter(inputs.values()))), self._loop.create_future())
        self._queue.append(pending)
        self._start()
        return pending.outputs

    def _start(self, timed_out: bool = False) -> None:
        if timed_out:
            self._timer = None
        while self._queue and len(self._tasks) < self._limits.concurrency:
            rows = list(itertools.accumulate(pending.rows for pending in self._queue))
            if not timed_out and len(rows) < self._expected and rows[-1] < self._limits.rows:
                self._timer = self._timer or self._loop.call_later(self._limits.timeout, self._start, True)
                return
            if self._timer is not None:
                self._timer.cancel()
            self._timer, timed_out = None, False
            count = max(1, sum(total <= self._limits.rows for total in rows))
            # If the client disconnected, the future is already cancelled.
            batch = [pending for pending in self._queue[:count] if not pending.outputs.done()]
            del self._queue[:count]
            if batch:
                self._tasks.add(task := self._loop.create_task(self._answer(batch)))
                task.add_done_callback(functools.partial(self._end, len(batch)))

    def _end(self, size: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._expected = size + len(self._queue)
        self._start()

    async def _answer(self, batch: Sequence[_Pending]) -> None:
        self._observe(sum(pending.rows for pending in batch))
        try:
            outputs = await self._loop.run_in_executor(self._threads, self._run, batch)
        except Exception as error:
            if len(batch) > 1:
                # One of the requests is wrong. Halving the batch finds it without running every request alone.
                await self._answer(batch[: len(batch) // 2])
                await self._answer(batch[len(batch) // 2 :])
            elif not batch[0].outputs.done():
                batch[0].outputs.set_exception(error)
            return
        for pending, answer in zip(batch, outputs, strict=True):
            if not pending.outputs.done():
                pending.outputs.set_result(answer)

    def _run(self, batch: Sequence[_Pending]) -> list[dict[str, Any]]:
        if len(batch) > 1:
            outputs = self._signature.run(self._signature.join([pending.inputs for pending in batch]))
            ends = np.cumsum([pending.rows for pending in batch]).tolist()
            if all(len(value) == ends[-1] for value in outputs.values()):
                return [
                    {name: value[end - pending.rows : end] for name, value in outputs.items()}
                    for pending, end in zip(batch, ends, strict=True)
                ]
            # The signature declares the batch as the first dimension of every output, but the model returned another
            # size. Run the requests one by one.
        return [self._signature.run(pending.inputs) for pending in batch]
