"""Tests of batching: requests are joined within limits, every request gets its rows, and errors stay separate."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from components.serving.server.batching import Batcher, BatchLimits
from components.serving.server.errors import RequestError
from components.serving.server.saved_model import Signature, TensorSpec

HOUR = 3600.0
"""Timeout in seconds that no test waits for in real time."""
WRONG = -1.0
ROWS = TensorSpec(tf.float32, (-1,))


class Model:
    """A model that doubles numbers, rejects WRONG, records its calls, and waits until `go` is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[list[float]] = []
        self.running = self.most_running = 0
        self.go = threading.Event()
        self.go.set()
        self._error = error or RequestError("wrong")
        self._lock = threading.Lock()

    def __call__(self, x: Any) -> Any:
        with self._lock:
            self.calls.append(x.tolist())
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        assert self.go.wait(60)
        with self._lock:
            self.running -= 1
        if WRONG in x:
            raise self._error
        return [x * 2]


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time a test can advance."""

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
    threads: ThreadPoolExecutor, model: Any, rows: int = 4, concurrency: int = 1, expected: int = 99
) -> Batcher:
    """Return a batcher that assumes that its previous batch answered `expected` requests."""
    signature = Signature("s", {"x": ROWS}, {"y": ROWS}, model)
    batcher = Batcher(signature, BatchLimits(rows, HOUR, concurrency), threads, lambda rows: None)
    batcher._expected = expected
    return batcher


def send(batcher: Batcher, *numbers: float) -> asyncio.Future[dict[str, Any]]:
    return batcher.run({"x": np.array(numbers, np.float32)})


async def answers(*futures: asyncio.Future[dict[str, Any]]) -> list[list[float]]:
    return [(await future)["y"].tolist() for future in futures]


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_full_batch_starts_at_once_and_each_request_receives_its_own_rows(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        rows: list[int] = []
        request_batcher = batcher(threads, model := Model())
        request_batcher._observe = rows.append
        assert await answers(send(request_batcher, 1), send(request_batcher, 2, 3), send(request_batcher, 4)) == [
            [2],
            [4, 6],
            [8],
        ]
        assert (model.calls, rows) == ([[1, 2, 3, 4]], [4])

    run(main)


def test_batch_that_is_not_full_starts_after_the_timeout(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        request_batcher = batcher(threads, model := Model())
        waiting = [send(request_batcher, 1), send(request_batcher, 2)]
        await settle()
        assert not model.calls
        loop.ahead += HOUR
        assert await answers(*waiting) == [[2], [4]]
        assert model.calls == [[1, 2]]

    run(main)


def test_batch_starts_once_all_clients_of_the_previous_batch_sent_a_request(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        request_batcher = batcher(threads, model := Model(), expected=2)
        assert await answers(send(request_batcher, 1), send(request_batcher, 2)) == [[2], [4]]
        await settle()
        assert await answers(send(request_batcher, 3), send(request_batcher, 4)) == [[6], [8]]
        await settle()
        alone = send(request_batcher, 5)
        await settle()
        assert model.calls == [[1, 2], [3, 4]]
        loop.ahead += HOUR
        assert await answers(alone) == [[10]]
        await settle()
        # A single client does not wait.
        assert await answers(send(request_batcher, 6)) == [[12]]

    run(main)


def test_requests_that_do_not_fit_are_added_to_the_next_batch(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        request_batcher = batcher(threads, model := Model())
        sent = [send(request_batcher, 1, 2, 3), send(request_batcher, 4, 5), send(request_batcher, 6, 7)]
        assert await answers(*sent) == [[2, 4, 6], [8, 10], [12, 14]]
        assert model.calls == [[1, 2, 3], [4, 5, 6, 7]]
        assert await answers(send(request_batcher, *range(9))) == [[2 * number for number in range(9)]]

    run(main)


def test_concurrency_is_limited_and_waiting_batches_fill(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        request_batcher = batcher(threads, model := Model(), concurrency=2)
        model.go.clear()
        sent = [
            send(request_batcher, 1, 1, 1, 1),
            send(request_batcher, 2, 2, 2, 2),
            *(send(request_batcher, number) for number in range(3, 11)),
        ]
        await settle()
        loop.ahead += HOUR
        await settle()
        model.go.set()
        assert await answers(*sent[2:]) == [[2 * number] for number in range(3, 11)]
        assert model.most_running <= 2
        assert sorted(model.calls) == [[1] * 4, [2] * 4, [3, 4, 5, 6], [7, 8, 9, 10]]

    run(main)


@pytest.mark.parametrize("error", [RequestError("wrong"), ValueError("wrong"), MemoryError()])
@settings(deadline=None, max_examples=30)
@given(wrong=st.sets(st.integers(0, 15)))
def test_invalid_request_does_not_fail_other_requests(error: Exception, wrong: set[int]) -> None:
    async def main(loop: Clock) -> None:
        request_batcher = batcher(threads, Model(error), rows=16)
        sent = [send(request_batcher, WRONG if number in wrong else number) for number in range(16)]
        results = await asyncio.gather(*sent, return_exceptions=True)
        for number, result in enumerate(results):
            assert result is error if number in wrong else result["y"].tolist() == [2 * number]

    with ThreadPoolExecutor(2) as threads:
        run(main)


def test_client_that_disconnects_does_not_delay_other_clients(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        request_batcher = batcher(threads, model := Model())
        send(request_batcher, 1).cancel()
        assert await answers(send(request_batcher, 2), send(request_batcher, 3, 4)) == [[4], [6, 8]]
        assert model.calls == [[2, 3, 4]]
        # Clients also disconnect while the model runs, which leaves a batch without clients.
        model.go.clear()
        for numbers in ((5, 5, 5, 5), (6,), (7, 7, 7)):
            send(request_batcher, *numbers).cancel()
        await settle()
        model.go.set()
        assert await answers(send(request_batcher, 8, 8, 8, 8)) == [[16, 16, 16, 16]]

    run(main)


def test_outputs_with_another_number_of_rows_are_computed_per_request(threads: ThreadPoolExecutor) -> None:
    async def main(loop: Clock) -> None:
        request_batcher = batcher(threads, lambda x: [x.sum(keepdims=True)])
        assert await answers(send(request_batcher, 1, 2), send(request_batcher, 3, 4)) == [[3], [7]]

    run(main)
