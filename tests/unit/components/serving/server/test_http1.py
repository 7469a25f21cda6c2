"""HTTP as clients send it: in pieces, ahead, packed, with offers; what is wrong, late or gone is told or cut."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.serving.server import http1, room
from components.serving.server.http1 import Http, Request, Response
from components.serving.server.room import Room

SECONDS = 100.0
MOST_BYTES = 1000
POST = b"POST /p HTTP/1.1\r\nHost: h\r\n"


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time goes on when a test says so."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


@pytest.fixture
def loop() -> Iterator[Clock]:
    loop = Clock()
    yield loop
    loop.close()


class Tried:
    """A server that answers with what it was asked, and may be told to wait."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.cancelled = 0
        self.go = asyncio.Event()
        self.go.set()
        self.length = 0
        self.http = Http(self.answer, Room(MOST_BYTES), SECONDS)
        self.port = 0
        self.clients: list[asyncio.StreamWriter] = []

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """One more client that has connected."""
        known = set(self.http._connections)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(writer)
        # To the server it may come a little later.
        while self.http._connections <= known:
            await asyncio.sleep(0)
        return reader, writer

    async def answer(self, request: Request) -> Response:
        self.asked.append((request.method, request.target, bytes(request.body)))
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Response(b"x" * self.length or request.target.encode(), kind="text/plain")


async def heard(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """One answer: status, headers, body."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:-2])
    return int(lines[0].split()[1]), headers, await reader.readexactly(int(headers["Content-Length"]))


Steps = Callable[[Tried, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def run(loop: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[Steps], None]:
    """Runs steps with one client that has connected."""
    monkeypatch.setattr(http1, "_LOOK_SECONDS", 0.05)

    async def main(steps: Steps) -> None:
        tried = Tried()
        tried.port = await tried.http.listen("127.0.0.1", 0)
        try:
            await asyncio.wait_for(steps(tried, *await tried.client()), 10 * SECONDS)
        finally:
            for writer in tried.clients:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            await tried.http.close()

    return lambda steps: loop.run_until_complete(main(steps))


async def pass_by(seconds: float) -> None:
    """Lets time pass."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Clock)
    loop.ahead += seconds


def test_answers_go_out_in_order_and_the_connection_stays(run: Callable[[Steps], None]) -> None:
    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /1 HTTP/1.1\r\n\r\n" + POST + b"Content-Length: 3\r\n\r\nabcHEAD /3 HTTP/1.1\r\n\r\n")
        assert [(await heard(reader))[2] for _ in range(2)] == [b"/1", b"/p"]
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length: 2\r\n" in head
        assert b"Connection: keep-alive\r\n" in head
        # Nothing follows the head of an answer to HEAD.
        writer.write(b"GET /4 HTTP/1.1\r\nConnection: close\r\n\r\nGET /5 HTTP/1.1\r\n\r\n")
        status, headers, body = await heard(reader)
        assert (status, headers["Connection"], headers["Content-Type"], body) == (200, "close", "text/plain", b"/4")
        assert await reader.read() == b""
        assert tried.asked == [("GET", "/1", b""), ("POST", "/p", b"abc"), ("HEAD", "/3", b""), ("GET", "/4", b"")]

    run(steps)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_where_the_bytes_are_cut_makes_no_difference(data: st.DataObject) -> None:
    content = (
        b"\r\n" + POST + b"Content-Length: 4\r\n\r\nbody"
        b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nT: 1\r\n\r\n"
        b"POST /u HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nGET /"
        b"GET /g HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        b"POST /v HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\n.\r\n0\r\n\r\n"
        b"GET /z?q=1 HTTP/1.0\r\n\r\n"
    )
    cuts = sorted(data.draw(st.sets(st.integers(1, len(content) - 1), max_size=12)))
    parts = [content[start:end] for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]

    class Transport:
        written = b""

        def write(self, content: bytes) -> None:
            self.written += content

        def close(self) -> None:
            pass

    async def main() -> tuple[Any, bytes]:
        tried, transport = Tried(), Transport()
        connection = http1._Connection(tried.http)
        connection.connection_made(transport)
        for part in parts:
            connection.data_received(part)
        if connection._answering is not None:
            await connection._answering
        return tried.asked, transport.written

    asked, written = asyncio.run(main())
    assert asked == [
        ("POST", "/p", b"body"),
        ("POST", "/c", b"abcd"),
        ("POST", "/u", b"GET /"),
        ("GET", "/g", b""),
        ("POST", "/v", b"."),
        ("GET", "/z?q=1", b""),
    ]
    assert [part[:3] for part in written.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 6


def test_a_body_is_sent_when_the_server_says_so(run: Callable[[Steps], None]) -> None:
    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(POST + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"x")
        assert (await heard(reader))[0] == 200
        assert tried.asked == [("POST", "/p", b"x")]

    run(steps)


def test_a_packed_body_is_unpacked_within_the_limit(run: Callable[[Steps], None]) -> None:
    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for size, status in ((MOST_BYTES, 200), (MOST_BYTES + 1, 413)):
            body = gzip.compress(b"x" * size)
            writer.write(POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert (await heard(reader))[0] == status
        assert [len(body) for _, _, body in tried.asked] == [MOST_BYTES]

    run(steps)


def test_what_is_refused_is_told_though_the_client_goes_on_sending(run: Callable[[Steps], None]) -> None:
    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.go.clear()
        # The first one is answered before the second is refused.
        writer.write(b"GET /1 HTTP/1.1\r\n\r\n" + POST + b"Content-Length: %d\r\n\r\n" % (MOST_BYTES + 1))
        writer.write(bytes(1 << 20))
        await writer.drain()
        tried.go.set()
        assert (await heard(reader))[0] == 200
        status, headers, body = await heard(reader)
        assert (status, headers["Connection"]) == (413, "close")
        assert b"at most 1000 bytes, received 1001" in body
        assert await reader.read() == b""
        assert tried.asked == [("GET", "/1", b"")]

    run(steps)


def test_no_connection_asks_for_more_than_it_may_ahead(run: Callable[[Steps], None]) -> None:
    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.go.clear()
        writer.write(b"GET /1 HTTP/1.1\r\n\r\n")
        while not tried.asked:
            await asyncio.sleep(0)
        writer.write(b"GET /1 HTTP/1.1\r\n\r\n" * 100)
        await writer.drain()
        tried.go.set()
        told = [(await heard(reader))[0] for _ in range(http1._AHEAD + 2)]
        assert told == [200] * (http1._AHEAD + 1) + [429]
        assert await reader.read() == b""

    run(steps)


def test_who_has_gone_is_not_waited_for(run: Callable[[Steps], None]) -> None:
    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.go.clear()
        writer.write(POST + b"Content-Length: 3\r\n\r\nabcPOST /next HTTP/1.1\r\nContent-Length: 9\r\n\r\nxyz")
        while not tried.asked:
            await asyncio.sleep(0)
        assert tried.http.room._held == 6
        writer.close()
        while not tried.cancelled:
            await asyncio.sleep(0)
        assert tried.http.room._held == 0

    run(steps)


@pytest.mark.parametrize(
    ("content", "at_once", "late"),
    [
        (b"", b"", b""),
        (b"\r\n", b"", b""),
        (POST, b"", b""),
        (POST + b"Content-Length: 2\r\n\r\nx", b"", b"408"),
        (b"GET /1 HTTP/1.1\r\n\r\n" + POST + b"Content-Length: 2\r\n\r\nx", b"200", b"408"),
        (POST + b"Content-Length: 1001\r\n\r\n", b"413", b""),
    ],
    ids=["nothing", "an empty line", "half a head", "half a body", "half a second body", "refused"],
)
def test_a_slow_client_is_told_or_cut(
    run: Callable[[Steps], None], content: bytes, at_once: bytes, late: bytes
) -> None:
    """Not before its time has come."""

    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        if at_once:
            status, _, _ = await heard(reader)
            assert status == int(at_once)
        elif content.startswith(b"POST"):
            (connection,) = tried.http._connections
            while not connection._reading:
                await asyncio.sleep(0)
        await pass_by(SECONDS - 5)
        await asyncio.sleep(2 * http1._LOOK_SECONDS)
        assert at_once == b"413" or not reader.at_eof()
        assert tried.http._connections
        await pass_by(10)
        rest = b""
        with contextlib.suppress(ConnectionResetError):
            rest = await reader.read()
        assert rest.partition(b" ")[2][:3] == late
        # Who is told has as long again to hear it.
        await pass_by(SECONDS)
        while tried.http._connections:
            await asyncio.sleep(0.01)

    run(steps)


def test_a_client_that_does_not_take_its_answer_is_cut(run: Callable[[Steps], None]) -> None:
    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.length = 64 << 20
        writer.write(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n")
        (connection,) = tried.http._connections
        await pass_by(SECONDS + 1)
        while tried.http._connections:
            await asyncio.sleep(0.01)
        assert connection.transport.is_closing()
        assert [target for _, target, _ in tried.asked] == ["/1"]

    run(steps)


def test_a_connection_may_rest_between_two_requests_but_not_for_ever(run: Callable[[Steps], None]) -> None:
    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(b"GET /1 HTTP/1.1\r\n\r\n")
            assert (await heard(reader))[0] == 200
            await pass_by(http1._IDLE_SECONDS - 5)
            await asyncio.sleep(2 * http1._LOOK_SECONDS)
        await pass_by(10)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await heard(reader)

    run(steps)


def test_closing_answers_what_has_come_and_sends_the_others_away(run: Callable[[Steps], None]) -> None:
    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        idle, _ = await tried.client()
        sending, half = await tried.client()
        tried.go.clear()
        writer.write(b"GET /1 HTTP/1.1\r\n\r\n")
        half.write(POST + b"Content-Length: 2\r\n\r\nx")
        while not (tried.asked and tried.http.room._held):
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(tried.http.close())
        assert await idle.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await tried.client()
        half.write(b"y")
        tried.go.set()
        for each in (reader, sending):
            status, headers, _ = await heard(each)
            assert (status, headers["Connection"]) == (200, "close")
        await closing
        assert len(tried.asked) == 2

    run(steps)


def test_the_bodies_in_memory_are_limited(run: Callable[[Steps], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_SMALL", 10)
    monkeypatch.setattr(room, "_IN_HAND", 1)

    async def steps(tried: Tried, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.go.clear()
        writer.write(POST + b"Content-Length: %d\r\n\r\n" % MOST_BYTES + b"x" * MOST_BYTES)
        while not tried.asked:
            await asyncio.sleep(0)
        for size, status in ((11, 429), (10, 200)):
            other, asking = await tried.client()
            asking.write(POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
            if status == 200:
                tried.go.set()
            assert (await heard(other))[0] == status
            asking.close()

    run(steps)


def test_a_fault_of_ours_is_no_fault_of_the_request(loop: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the connection, and is told in the log, by the loop."""

    async def main() -> None:
        connection = http1._Connection(Tried().http)
        connection.connection_made(None)
        monkeypatch.setattr(connection._server.room, "hold", None)
        with pytest.raises(httptools.HttpParserCallbackError):
            connection.data_received(POST + b"Content-Length: 1\r\n\r\nx")

    loop.run_until_complete(main())
