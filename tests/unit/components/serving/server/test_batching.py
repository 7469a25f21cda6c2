"""Requests are joined within limits, each gets its own rows, and a bad one spoils nobody's answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from components.serving.server.batching import Batcher, Limits
from components.serving.server.refusal import RequestError, invalid
from components.serving.server.servable import Signature, Tensor

LONG = 3600.0
"""Seconds that no test waits: what is answered was not waiting for others."""
POISON = -1.0
ROWS = Tensor(tf.float32, (-1,))


class Model:
    """Doubles numbers; refuses POISON; notes what it was called with, and waits while it is told to."""

    def __init__(self, poison: Exception | None = None) -> None:
        self.calls: list[list[float]] = []
        self.together = self.most_together = 0
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()
        self._poison = poison or invalid("poison")
        self._lock = threading.Lock()

    def __call__(self, x: Any) -> Any:
        with self._lock:
            self.calls.append(x.tolist())
            self.together += 1
            self.most_together = max(self.most_together, self.together)
        self.entered.release()
        assert self.go.wait(60)
        with self._lock:
            self.together -= 1
        if POISON in x:
            raise self._poison
        return [x * 2]


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time goes on when a test says so."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def run(main: Callable[[Clock], Coroutine[Any, Any, None]]) -> None:
    loop = Clock()
    try:
        loop.run_until_complete(main(loop))
    finally:
        loop.close()


def batcher(
    threads: ThreadPoolExecutor, model: Model, rows: int = 4, at_once: int = 1, seconds: float = LONG
) -> Batcher:
    signature = Signature("s", "", {"x": ROWS}, {"y": ROWS}, model)
    return Batcher(signature, Limits(rows, seconds, at_once), threads, lambda rows: None)


def ask(batcher: Batcher, *numbers: float) -> asyncio.Task[dict[str, Any]]:
    async def request() -> dict[str, Any]:
        return await batcher.run({"x": np.array(numbers, np.float32)})

    return asyncio.create_task(request())


async def told(*tasks: asyncio.Task[dict[str, Any]]) -> list[list[float]]:
    return [(await task)["y"].tolist() for task in tasks]


def hurry(batcher: Batcher) -> None:
    """As if a full batch had just been answered, of requests that came one right after the other."""
    batcher._last, batcher._between = asyncio.get_running_loop().time(), 0.0
    batcher._expected = batcher._limits.rows


async def turn() -> None:
    """Lets every task come as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_full_batch_starts_at_once_and_each_gets_its_own_rows(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        model = Model()
        joined = batcher(threads, model)
        hurry(joined)
        assert await told(ask(joined, 1), ask(joined, 2, 3), ask(joined, 4)) == [[2], [4, 6], [8]]
        assert model.calls == [[1, 2, 3, 4]]

    run(main)


def test_a_batch_that_is_not_full_starts_in_time(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        model = Model()
        joined = batcher(threads, model)
        hurry(joined)
        waiting = [ask(joined, 1), ask(joined, 2)]
        await turn()
        assert not model.calls
        loop.ahead += LONG
        assert await told(*waiting) == [[2], [4]]
        assert model.calls == [[1, 2]]

    run(main)


def test_those_who_were_answered_together_are_waited_for_and_nobody_else(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        model = Model()
        joined = batcher(threads, model)
        hurry(joined)
        pair = [ask(joined, 1), ask(joined, 2)]
        await turn()
        loop.ahead += LONG
        assert await told(*pair) == [[2], [4]]
        # The two are back: nobody else is to be expected.
        assert await told(ask(joined, 3), ask(joined, 4)) == [[6], [8]]
        alone = ask(joined, 5)
        await turn()
        assert model.calls == [[1, 2], [3, 4]]
        loop.ahead += LONG
        assert await told(alone) == [[10]]
        assert await told(ask(joined, 6)) == [[12]]
        assert model.calls[2:] == [[5], [6]]

    run(main)


def test_what_does_not_go_into_a_batch_goes_into_the_next(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        model = Model()
        joined = batcher(threads, model)
        hurry(joined)
        asked = [ask(joined, 1, 2, 3), ask(joined, 4, 5), ask(joined, 6, 7)]
        assert await told(*asked) == [[2, 4, 6], [8, 10], [12, 14]]
        assert model.calls == [[1, 2, 3], [4, 5, 6, 7]]

    run(main)


def test_a_request_that_is_more_than_a_batch_goes_alone(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        model = Model()
        joined = batcher(threads, model)
        assert await told(ask(joined, *range(9))) == [[2 * number for number in range(9)]]

    run(main)


def test_no_more_batches_run_than_may_and_those_that_wait_fill_up(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        model = Model()
        joined = batcher(threads, model, at_once=2)
        hurry(joined)
        model.go.clear()
        model.entered = threading.Semaphore(0)
        asked = [ask(joined, 1, 1, 1, 1), ask(joined, 2, 2, 2, 2), *(ask(joined, number) for number in range(3, 10))]
        await turn()
        loop.ahead += LONG
        for _ in range(2):
            await loop.run_in_executor(threads, model.entered.acquire)
        model.go.set()
        assert (await told(*asked[:6]))[2:] == [[2 * number] for number in range(3, 7)]
        # Their time had come while none could start; they wait anew for those who were answered just now.
        asked.append(ask(joined, 10))
        assert await told(*asked[6:]) == [[2 * number] for number in range(7, 11)]
        asked += [ask(joined, 11), ask(joined, 12)]
        await turn()
        loop.ahead += LONG
        assert await told(*asked[10:]) == [[22], [24]]
        assert model.most_together == 2
        assert sorted(model.calls[2:]) == [[3, 4, 5, 6], [7, 8, 9, 10], [11, 12]]

    run(main)


def test_rare_requests_do_not_wait(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        model = Model()
        joined = batcher(threads, model)
        for number in range(3):
            loop.ahead += 100 * LONG
            assert await told(ask(joined, number)) == [[2 * number]]

    run(main)


@pytest.mark.parametrize("error", [invalid("poison"), ValueError("poison"), MemoryError()])
@settings(deadline=None, max_examples=30)
@given(poisoned=st.sets(st.integers(0, 15)))
def test_a_poisoned_request_is_refused_alone(error: Exception, poisoned: set[int]) -> None:
    async def main(loop: Clock) -> None:
        joined = batcher(threads, Model(error), rows=16)
        hurry(joined)
        asked = [ask(joined, POISON if number in poisoned else number) for number in range(16)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for number, answer in enumerate(answers):
            if number in poisoned:
                assert answer is error
            else:
                assert answer["y"].tolist() == [2 * number]

    with ThreadPoolExecutor(2) as threads:
        run(main)


def test_an_asker_who_has_gone_holds_nobody_up(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        model = Model()
        joined = batcher(threads, model)
        hurry(joined)
        gone, stays = ask(joined, 1), ask(joined, 2)
        await turn()
        gone.cancel()
        assert await told(stays, ask(joined, 3, 4)) == [[4], [6, 8]]
        assert model.calls == [[2, 3, 4]]
        # One who goes while the model runs, and a batch that nobody is left to ask for.
        model.go.clear()
        gone, *late = ask(joined, 5, 5, 5, 5), ask(joined, 6), ask(joined, 7, 7, 7)
        await turn()
        for task in (gone, *late):
            task.cancel()
        await turn()
        model.go.set()
        assert await told(ask(joined, 8, 8, 8, 8)) == [[16, 16, 16, 16]]
        assert model.calls[1:] == [[5, 5, 5, 5], [8, 8, 8, 8]]

    run(main)


def test_outputs_that_are_not_by_row_come_from_each_request_alone(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        signature = Signature("s", "", {"x": ROWS}, {"y": ROWS}, lambda x: [x.sum(keepdims=True)])
        joined = Batcher(signature, Limits(4, LONG, 1), threads, lambda rows: None)
        hurry(joined)
        assert await told(ask(joined, 1, 2), ask(joined, 3, 4)) == [[3], [7]]

    run(main)


def test_the_rows_of_each_batch_are_told(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        rows: list[int] = []
        signature = Signature("s", "", {"x": ROWS}, {"y": ROWS}, Model())
        joined = Batcher(signature, Limits(4, LONG, 1), threads, rows.append)
        hurry(joined)
        await told(ask(joined, 1, 2, 3, 4), *(ask(joined, number) for number in range(4)))
        assert rows == [4, 4]

    run(main)


def test_a_refusal_is_a_refusal(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        with pytest.raises(RequestError, match="poison"):
            await ask(batcher(threads, Model()), POISON)

    run(main)


def test_the_timer_of_a_batch_rings_once(threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """However libuv rounds its milliseconds: 2.4 are 2, and the rest would be none, again and again."""
    rings = 0
    ring = Batcher._ring

    def counted(batcher: Batcher) -> None:
        nonlocal rings
        rings += 1
        ring(batcher)

    monkeypatch.setattr(Batcher, "_ring", counted)

    async def main() -> None:
        joined = batcher(threads, Model(), seconds=0.0024)
        hurry(joined)
        assert await told(ask(joined, 1.0)) == [[2.0]]

    uvloop.run(main())
    assert rings <= 2
