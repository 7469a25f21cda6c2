"""Requests that arrive together go through the model together; each gets its own rows back, or its own refusal."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.serving.server.servable import Arrays, Signature

_MEMORY = 0.9
"""Weight of the past in the mean time between two requests."""
_TICK = 0.001
"""Seconds that the timers of libuv are rounded to: one that is set for less rings at once, again and again."""


@dataclass(frozen=True)
class Limits:
    """When a batch is full, and how long it waits to become so.

    Attributes:
      rows: of one batch; a request of more goes alone.
      seconds: that a first request waits for others.
      at_once: batches of one signature that run side by side.
    """

    rows: int
    seconds: float
    at_once: int


class _Waiting:
    """A request."""

    __slots__ = ("answer", "inputs", "rows", "until")

    def __init__(self, inputs: Arrays, rows: int, until: float, answer: asyncio.Future[dict[str, Any]]) -> None:
        self.inputs, self.rows, self.until, self.answer = inputs, rows, until, answer


class Batcher:
    """Joins the requests of one signature.

    A batch starts when it is full, or when its first request has waited long enough, but never while as many run as
    may: then it goes on filling, and waits anew when one of them has ended, since those who are answered now are the
    likeliest to ask again. Once as many wait as were answered and left waiting then, nobody else is to be expected, and
    it starts at once. Where requests come so rarely that nobody would join within that time, none waits.

    Args:
      signature: whose requests; one that `batches`.
      limits: of a batch.
      threads: where the model runs.
      observe: told the rows of every batch.
    """

    def __init__(self, signature: Signature, limits: Limits, threads: Executor, observe: Callable[[int], None]) -> None:
        self._signature, self._limits, self._threads, self._observe = signature, limits, threads, observe
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Waiting] = []
        self._rows = 0
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self._last = -1e9
        self._between = limits.seconds
        self._expected = limits.rows
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, inputs: Arrays) -> asyncio.Future[dict[str, Any]]:
        """The answer to one request, which fits the signature; a RequestError if the graph refuses it."""
        now = self._loop.time()
        self._between = _MEMORY * self._between + (1 - _MEMORY) * min(now - self._last, 10 * self._limits.seconds)
        self._last = now
        rows = len(next(iter(inputs.values())))
        waiting = _Waiting(inputs, rows, now + self._limits.seconds, self._loop.create_future())
        self._queue.append(waiting)
        self._rows += rows
        if self._between > self._limits.seconds:
            # With whoever may be waiting.
            self._queue[0].until = now
        self._start()
        return waiting.answer

    def _start(self) -> None:
        """Starts the batches that are full or whose time has come, as many as may run; else waits for that time."""
        while self._queue and self._running < self._limits.at_once:
            are_all = self._rows >= self._limits.rows or len(self._queue) >= self._expected
            if not are_all and self._queue[0].until > self._loop.time() + _TICK / 2:
                # One that was set for a request that is gone rings too early, and is set anew.
                if self._timer is None:
                    self._timer = self._loop.call_at(self._queue[0].until, self._ring)
                return
            if batch := self._take():
                self._running += 1
                task = self._loop.create_task(self._answer(batch))
                self._tasks.add(task)
                task.add_done_callback(functools.partial(self._ended, len(batch)))

    def _ring(self) -> None:
        self._timer = None
        self._start()

    def _take(self) -> list[_Waiting]:
        """The first requests of the queue, as many as go into a batch; those whose asker has gone are left out."""
        taken, rows = 0, 0
        for waiting in self._queue:
            if taken and rows + waiting.rows > self._limits.rows:
                break
            taken, rows = taken + 1, rows + waiting.rows
        batch, self._queue = self._queue[:taken], self._queue[taken:]
        self._rows -= rows
        return [waiting for waiting in batch if not waiting.answer.done()]

    def _ended(self, answered: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._expected = answered + len(self._queue)
        none_could_start = self._running == self._limits.at_once
        self._running -= 1
        if none_could_start and self._queue and self._between < self._limits.seconds:
            self._queue[0].until = self._loop.time() + self._limits.seconds
        self._start()

    async def _answer(self, batch: Sequence[_Waiting]) -> None:
        self._observe(sum(waiting.rows for waiting in batch))
        try:
            answers = await self._loop.run_in_executor(self._threads, self._together, batch)
        except Exception as error:
            if len(batch) == 1:
                if not batch[0].answer.done():
                    batch[0].answer.set_exception(error)
                return
            # One of them is to blame: halves find it without running all the others alone.
            middle = len(batch) // 2
            await self._answer(batch[:middle])
            await self._answer(batch[middle:])
        else:
            for waiting, answer in zip(batch, answers, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)

    def _together(self, batch: Sequence[_Waiting]) -> list[dict[str, Any]]:
        if len(batch) == 1:
            return [self._signature.run(batch[0].inputs)]
        joined = {name: np.concatenate([each.inputs[name] for each in batch]) for name in self._signature.inputs}
        answers = self._signature.run(joined)
        rows = sum(waiting.rows for waiting in batch)
        if any(len(answer) != rows for answer in answers.values()):
            # Its first dimension is not the batch, whatever the signature says.
            return [self._signature.run(waiting.inputs) for waiting in batch]
        parts, start = [], 0
        for waiting in batch:
            parts.append({name: answer[start : start + waiting.rows] for name, answer in answers.items()})
            start += waiting.rows
        return parts
