"""HTTP/1.1 for small requests of many clients, not all of them friendly: whole requests in, whole answers out.

The bytes are parsed by llhttp (https://github.com/nodejs/llhttp), which refuses what two servers could read in two
ways. What a web framework does around such a parser takes longer than all the rest of a request that shares a batch
with others; see benchmarks/serving.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import math
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple

import httptools

from components.serving.server.room import Room

_HEAD = 1 << 16
"""Bytes of a request's first line and its headers."""
_AHEAD = 16
"""Requests that one connection may send while another one of its is answered."""
_IDLE_SECONDS = 75.0
"""How long a connection lives between two requests."""
_LOOK_SECONDS = 0.5
"""Between two looks for clients that are too slow."""

_STATUS = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


class Request(NamedTuple):
    """A request that has arrived.

    Attributes:
      method: e.g. POST.
      target: the path, and the query if there is one, as it was sent.
      body: unpacked.
    """

    method: str
    target: str
    body: bytes | bytearray


class Response(NamedTuple):
    """What a request is told.

    Attributes:
      body: all of it.
      status: HTTP's.
      kind: its media type.
    """

    body: bytes
    status: int = 200
    kind: str = "application/json"


def refusal(status: int, message: str) -> Response:
    """Why a request is not answered, as TensorFlow Serving says it."""
    return Response(json.dumps({"error": message}).encode(), status)


class Http:
    """A server.

    A client that is too slow is told so (408), or dropped where nobody could say what it wants. One that has gone is
    not waited for: its answer is cancelled.

    Args:
      answer: a request → what it is told; raises nothing.
      room: for bodies, packed or not.
      client_seconds: that a client may take to send a request, or to take the answer.
    """

    def __init__(self, answer: Callable[[Request], Awaitable[Response]], room: Room, client_seconds: float) -> None:
        self.answer, self.room, self.client_seconds = answer, room, client_seconds
        self.loop = asyncio.get_running_loop()
        self.closing = False
        self.date = ""
        self._connections: set[_Connection] = set()
        self._none_left = asyncio.Event()
        self._none_left.set()

    async def listen(self, host: str, port: int) -> int:
        """Starts to listen; returns the port.

        Raises:
          OSError: the port is taken.
        """
        self._listener = await self.loop.create_server(lambda: _Connection(self), host, port, backlog=1024)
        self._look()
        return int(self._listener.sockets[0].getsockname()[1])

    def _look(self) -> None:
        # One timer for all clients, since setting and clearing one for every request would take longer than this.
        now = self.loop.time()
        for connection in [each for each in self._connections if each.until < now]:
            connection.be_late()
        self.date = email.utils.formatdate(usegmt=True)
        self._timer = self.loop.call_later(_LOOK_SECONDS, self._look)

    async def close(self) -> None:
        """Takes no more connections, and waits for the requests that are being sent or answered."""
        self._listener.close()
        # What has arrived by now is read before anybody is sent away.
        await asyncio.sleep(0)
        self.closing = True
        for connection in list(self._connections):
            connection.leave()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._none_left.wait(), self.client_seconds)
        self._timer.cancel()
        for connection in self._connections:
            connection.transport.abort()
        await self._none_left.wait()

    def came(self, connection: _Connection) -> None:
        """A client has come."""
        self._connections.add(connection)
        self._none_left.clear()

    def went(self, connection: _Connection) -> None:
        """A client has gone."""
        self._connections.discard(connection)
        if not self._connections:
            self._none_left.set()


class _RefusedError(Exception):
    """Ends the parsing."""


class _Connection(asyncio.Protocol):
    """A client.

    Attributes:
      transport: to it.
      until: when it has to have done what it is waited for, in the loop's time.
    """

    def __init__(self, server: Http) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._ready: deque[tuple[Request | Response, int, bool]] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._taken: asyncio.Future[None] | None = None
        self._refused: Response | None = None
        # Whether nothing of what it sends is read any more.
        self._deaf = False
        self._held = 0
        # Bytes that the parser was fed since it has last found something whole.
        self._fed = 0
        self._renew(reading=False)

    def _renew(self, reading: bool) -> None:
        self._reading, self._in_head, self._offered = reading, reading, False
        self._head = self._size = 0
        self._method, self._target = "", b""
        self._framing = self._packed = b""
        self._expects = False
        self._body = bytearray()

    # What its socket does.

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.until = self._server.loop.time() + self._server.client_seconds
        self._server.came(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._deaf = True
        if self._answering is not None:
            self._answering.cancel()
        self._hold(-self._held)
        self._server.went(self)

    def pause_writing(self) -> None:
        self._taken = self._server.loop.create_future()

    def resume_writing(self) -> None:
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
        self._taken = None

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            # Else whoever goes on sending would never read why it was refused.
            return
        # The parser keeps a header, or a trailer, to itself until it is whole.
        self._fed += len(data)
        try:
            self._feed(data)
            if self._fed > _HEAD:
                raise self._refuse(431, f"expected at most {_HEAD} bytes of headers")
        except (httptools.HttpParserError, _RefusedError) as error:
            if self._refused is None and isinstance(error, httptools.HttpParserCallbackError):
                raise
            self._give_up(self._refused or refusal(400, f"this is no HTTP/1.1 request: {error}"))

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._parser.get_method() == b"CONNECT":
                raise self._refuse(405, "this is no proxy") from offer
            # Java's client offers HTTP/2 so. An offer need not be taken, but llhttp reads no further: what follows
            # goes through a parser that has seen none.
            self._parser, self._offered = httptools.HttpRequestParser(self), True
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + self._framing + b"\r\n")
            if rest := data[offer.args[0] :]:
                self._feed(rest)

    # What the parser finds.

    def on_message_begin(self) -> None:
        if not self._offered:
            self._renew(reading=True)
            if self._answering is None:
                self.until = self._server.loop.time() + self._server.client_seconds

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        if not self._offered:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value))
        if not self._in_head or self._offered:
            return
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._framing += name + b": " + value + b"\r\n"
            if name == b"content-length":
                # llhttp has seen that it is a number.
                self._check(int(value))
        elif name == b"content-encoding":
            self._packed = value.lower()
        elif name == b"expect":
            self._expects = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        self._fed, self._in_head = 0, False
        if self._offered:
            return
        self._method = self._parser.get_method().decode()
        if self._packed not in (b"", b"identity", b"gzip"):
            raise self._refuse(415, "expected a body as it is, or gzip")
        if self._expects and self._answering is None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        self._body += part
        self._fed = 0
        self._take(len(part))

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            # As far as this parser sees; the body is still to come.
            return
        body = self._unpacked(self._body) if self._packed == b"gzip" else self._body
        if len(self._ready) == _AHEAD:
            raise self._refuse(429, f"expected at most {_AHEAD} requests ahead of their answers")
        size = self._size
        self._fed, self._size, self._body, self._reading, self._offered = 0, 0, bytearray(), False, False
        request = Request(self._method, self._target.decode("latin-1"), body)
        self._put(request, size, self._parser.should_keep_alive())

    # What becomes of a request.

    def _grow(self, size: int) -> None:
        self._head += size
        if self._head > _HEAD:
            raise self._refuse(431, f"expected at most {_HEAD} bytes of headers")

    def _check(self, length: int) -> None:
        most = self._server.room.most_bytes
        if length > most:
            raise self._refuse(413, f"expected a body of at most {most} bytes, received {length}")

    def _take(self, size: int) -> None:
        self._size += size
        self._hold(size)
        self._check(self._size)
        if self._server.room.is_too_small(self._size):
            raise self._refuse(429, "too many large requests are in memory; try again")

    def _hold(self, size: int) -> None:
        self._held += size
        self._server.room.hold(size)

    def _unpacked(self, packed: bytearray) -> bytes:
        unpacker, most = zlib.decompressobj(zlib.MAX_WBITS | 16), self._server.room.most_bytes
        try:
            body = unpacker.decompress(packed, most + 1)
        except zlib.error as error:
            raise self._refuse(400, f"the body is no gzip: {error}") from error
        if not unpacker.eof and len(body) <= most:
            raise self._refuse(400, "the body is no whole gzip")
        self._take(len(body) - len(packed))
        return body

    def _refuse(self, status: int, message: str) -> _RefusedError:
        # The parser passes on that a callback has raised, but not what.
        self._refused = refusal(status, message)
        return _RefusedError()

    def _give_up(self, told: Response) -> None:
        """Reads no further; others find the room at once."""
        self._hold(-self._size)
        self._renew(reading=False)
        self._put(told, 0, False)

    def _put(self, request: Request | Response, size: int, stays: bool) -> None:
        """Has a request answered, after those before it."""
        if self._deaf:
            return
        if not stays:
            self._deaf = True
        self._ready.append((request, size, stays))
        if self._answering is None:
            self._answering = self._server.loop.create_task(self._answer())

    async def _answer(self) -> None:
        server = self._server
        while self._ready:
            self.until = math.inf
            request, size, stays = self._ready.popleft()
            if isinstance(request, Response):
                refused, bare, told = True, False, request
            else:
                refused, bare, told = False, request.method == "HEAD", await server.answer(request)
            self._hold(-size)
            stays = stays and not (server.closing and not self._ready and not self._reading)
            self._tell(told, stays, bare)
            if not stays:
                self._deaf = True
                if refused:
                    # Closed at once, with bytes of the request still unread, its kernel would drop the answer.
                    self.transport.write_eof()
                else:
                    self.transport.close()
            if not stays or self._taken is not None:
                self.until = server.loop.time() + server.client_seconds
            if self._taken is not None:
                await self._taken
        self._answering = None
        if not self._deaf:
            self.until = server.loop.time() + (server.client_seconds if self._reading else _IDLE_SECONDS)

    def _tell(self, told: Response, stays: bool, bare: bool) -> None:
        head = (
            f"HTTP/1.1 {_STATUS[told.status]}\r\nContent-Type: {told.kind}\r\nContent-Length: {len(told.body)}\r\n"
            f"Date: {self._server.date}\r\nConnection: {'keep-alive' if stays else 'close'}\r\n\r\n"
        )
        self.transport.write(head.encode() + (b"" if bare else told.body))

    def be_late(self) -> None:
        """Its time is over."""
        if self._reading and not self._in_head and self._answering is None:
            self._give_up(refusal(408, "the body did not arrive in time"))
        else:
            self.transport.abort()

    def leave(self) -> None:
        """Goes, or will go after what is being sent or answered."""
        if self._answering is None and not self._reading:
            self.transport.close()
