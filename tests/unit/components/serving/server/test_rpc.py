"""gRPC as clients send it: at once, slowly, too much, not at all; what is late is told, what has gone is cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
import pytest

from components.serving.server import room, rpc
from components.serving.server.refusal import invalid
from components.serving.server.room import Room
from components.serving.server.rpc import Rpc

MOST_BYTES = 1000
SECONDS = 60.0
CODES = grpc.StatusCode


class Tried:
    """A server that answers with what it was asked, and may be told to wait."""

    def __init__(self, client_seconds: float) -> None:
        self.asked: list[bytes] = []
        self.cancelled = 0
        self.go = asyncio.Event()
        self.go.set()
        self.room = Room(MOST_BYTES)
        self.rpc = Rpc({"s": {"m": self.answer}}, self.room, client_seconds)

    async def answer(self, message: bytes) -> bytes:
        self.asked.append(message)
        if message == b"wrong":
            raise invalid("expected another one")
        if message == b"broken":
            raise KeyError("k")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return message

    @property
    def coming(self) -> int:
        """Messages on their way."""
        return len(self.rpc._coming)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def served(client_seconds: float = SECONDS) -> AsyncIterator[tuple[Tried, Any]]:
    """A server, and a client's connection to it."""
    tried = Tried(client_seconds)
    port = await tried.rpc.listen("127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield tried, channel
    finally:
        tried.go.set()
        await tried.rpc.close()
    assert (tried.coming, tried.room._held) == (0, 0)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can reach."""
    monkeypatch.setattr(rpc, "_SERVERS", 2)
    monkeypatch.setattr(rpc, "_SLOW", 2)
    monkeypatch.setattr(rpc, "_SLOW_SECONDS", 0.05)
    monkeypatch.setattr(rpc, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(room, "_SMALL", 10)
    monkeypatch.setattr(room, "_IN_HAND", 1)


def run(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(steps(), SECONDS)

    asyncio.run(main())


async def told(call: Any) -> tuple[Any, str]:
    """The status of a call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), refused.value.details()


@pytest.mark.parametrize(
    ("method", "message", "code", "word"),
    [
        ("/s/m", b"wrong", CODES.INVALID_ARGUMENT, "expected another one"),
        ("/s/m", b"broken", CODES.INTERNAL, "KeyError: 'k'"),
        ("/s/m", b"x" * (MOST_BYTES + 1), CODES.RESOURCE_EXHAUSTED, "larger than max"),
        ("/s/n", b"", CODES.UNIMPLEMENTED, "not found"),
    ],
)
def test_a_message_is_answered_or_refused(method: str, message: bytes, code: Any, word: str) -> None:
    async def steps() -> None:
        async with served() as (_, channel):
            assert await channel.unary_unary("/s/m")(b"good") == b"good"
            found, details = await told(channel.unary_unary(method)(message))
            assert (found, word in details) == (code, True), details

    run(steps)


def test_no_message_is_told() -> None:
    async def steps() -> None:
        async with served() as (_, channel):
            call = channel.stream_unary("/s/m")()
            await call.done_writing()
            assert await told(call) == (CODES.INVALID_ARGUMENT, "expected a message, received none")

    run(steps)


def test_slow_messages_are_limited_and_others_are_answered_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps() -> None:
        async with served() as (tried, channel):
            slow = [channel.stream_unary("/s/m")() for _ in range(2)]
            await until(lambda: tried.coming == 2)
            for call in [channel.stream_unary("/s/m")() for _ in range(2)]:
                assert await told(call) == (CODES.RESOURCE_EXHAUSTED, "too many messages are on their way; try again")
            # However long this machine takes for it.
            monkeypatch.setattr(rpc, "_SLOW_SECONDS", SECONDS)
            assert await channel.unary_unary("/s/m")(b"quick") == b"quick"
            for call in slow:
                await call.write(b"at last")
                await call.done_writing()
                assert await call == b"at last"

    run(steps)


def test_a_message_that_does_not_arrive_in_time_is_told() -> None:
    async def steps() -> None:
        async with served(client_seconds=0.2) as (tried, channel):
            call = channel.stream_unary("/s/m")()
            assert await told(call) == (CODES.DEADLINE_EXCEEDED, "the message did not arrive in time")
            assert tried.asked == []
            tried.rpc._client_seconds = SECONDS
            assert await channel.unary_unary("/s/m")(b"in time") == b"in time"

    run(steps)


def test_the_messages_in_memory_are_limited() -> None:
    async def steps() -> None:
        async with served() as (tried, channel):
            tried.go.clear()
            ask = channel.unary_unary("/s/m")
            large = ask(b"x" * MOST_BYTES)
            await until(lambda: len(tried.asked) == 1)
            assert await told(ask(b"x" * 11)) == (
                CODES.RESOURCE_EXHAUSTED,
                "too many large requests are in memory; try again",
            )
            small = ask(b"x" * 10)
            await until(lambda: len(tried.asked) == 2)
            tried.go.set()
            assert (await large, await small) == (b"x" * MOST_BYTES, b"x" * 10)
            assert await ask(b"x" * 11) == b"x" * 11

    run(steps)


@pytest.mark.parametrize("sent", [True, False], ids=["asked", "asking"])
def test_a_client_that_has_gone_is_not_waited_for(sent: bool) -> None:
    async def steps() -> None:
        async with served() as (tried, channel):
            tried.go.clear()
            call = channel.unary_unary("/s/m")(b"x") if sent else channel.stream_unary("/s/m")()
            await until(lambda: bool(tried.asked) if sent else tried.coming == 1)
            call.cancel()
            await until(lambda: tried.cancelled == 1 if sent else tried.coming == 0)

    run(steps)


def test_at_the_end_what_is_in_hand_is_answered() -> None:
    async def steps() -> None:
        async with served() as (tried, channel):
            tried.go.clear()
            call = channel.unary_unary("/s/m")(b"x")
            await until(lambda: bool(tried.asked))
            closing = asyncio.ensure_future(tried.rpc.close())
            await asyncio.sleep(0)
            tried.go.set()
            assert await call == b"x"
            await closing

    run(steps)


def test_a_port_that_is_taken_is_refused() -> None:
    async def steps() -> None:
        async with served() as (tried, _):
            other = Tried(SECONDS)
            port = await other.rpc.listen("127.0.0.1", 0)
            with pytest.raises(OSError, match="ddress already in use"):
                await tried.rpc.listen("127.0.0.1", port)
            await other.rpc.close()

    run(steps)
