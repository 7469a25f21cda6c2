"""Connections of aiohttp's server that answer half-closed clients, and invalid HTTP in the application's format."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import ContentEncodingError
from aiohttp.web_protocol import _ErrInfo

ErrorFactory = Callable[[int, str], web.Response]
"""Function from a status and a message to the response."""

_MAX_LENGTH = 200
"""Maximum characters of a message of aiohttp's parser, which quotes what it received."""


class Runner(web.AppRunner):
    """An AppRunner whose connections are `Connection`.

    aiohttp does not let an application choose the class of its connections, so this class replaces the server that the
    application makes. Checked with aiohttp 3.14.

    Args:
      application: The application.
      make_error: Function that creates the response to an error outside of the application's handlers.
      options: Options of AppRunner.
    """

    def __init__(self, application: web.Application, make_error: ErrorFactory, **options: Any) -> None:
        super().__init__(application, **options)
        self._make_error = make_error

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        factory, cancels = server.request_factory, server.handler_cancellation
        replacement = _Server(
            server.request_handler, request_factory=factory, handler_cancellation=cancels, **server._kwargs
        )
        replacement.make_error = self._make_error
        return replacement


class _Server(web.Server):
    make_error: ErrorFactory

    def __call__(self) -> Connection:
        return Connection(self, self.make_error, loop=self._loop, **self._kwargs)


class Connection(web.RequestHandler):
    """A connection that differs from aiohttp's in the following cases.

    - A client may shut down its sending side after a request, and still receives the answers to all of its requests.
      aiohttp closes the connection. The price: a client that has closed its connection completely looks the same until
      the answer is sent, so its request is answered too.
    - If the body of a request ends early or becomes invalid, reading it fails at once. aiohttp lets the handler wait.
    - A request that is not valid HTTP is answered with HTTP/1.1 and `make_error`; aiohttp uses HTTP/1.0 and plain text.
      Then the connection stays open until the client has ended it, at most for `lingering_time`, because the kernel
      discards a response that the client has not read if the connection is closed while the client sends (RFC 9112,
      section 9.6).

    Args:
      server: The server, which holds the connections.
      make_error: Function that creates the response to an error outside of the application's handlers.
      options: Options of aiohttp's RequestHandler.
    """

    __slots__ = ("_body", "_end", "_ended", "_failed", "_make_error")

    def __init__(self, server: web.Server, make_error: ErrorFactory, **options: Any) -> None:
        super().__init__(server, **options)
        self._make_error = make_error
        self._body: Any = None
        self._end: asyncio.Future[None] | None = None
        self._ended = self._failed = False

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; fail the body that the parser was reading if they are not valid."""
        if self._failed:
            return
        super().data_received(data)
        if not self._messages:
            return
        message, body = self._messages[-1]
        if not isinstance(message, _ErrInfo):
            self._body = body
            return
        self._failed = True
        if self._fail_body(message.message):
            # The request with this body is answered with the error. A second answer would have no request.
            self._messages.pop()
            self._close_after_answers()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether the connection stays open: if there are requests that have not been answered."""
        self._ended = True
        if self._end is not None and not self._end.done():
            self._end.set_result(None)
        if self._waiter is not None and not self._waiter.done() and not self._messages:
            return False
        self._fail_body("the client ended the connection before the end of the body")
        self._close_after_answers()
        return True

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response; close the connection after the last one if the client has ended it or is not understood."""
        if isinstance(resp, web.HTTPException):
            # Raised outside of the middlewares, for example for a header `Expect` with an unknown value.
            resp = self._make_error(resp.status, str(resp.text))
        if self._ended or self._failed:
            self._close_after_answers()
        if self._close:
            resp.force_close()
        result = await super().finish_response(request, resp, start_time)
        if self._failed and self._close and not self._ended:
            await self._wait_for_end()
        return result

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Create the response to a request that is not valid HTTP (with a message), or whose handler failed."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response has already been sent in part")
        if message is None:
            logging.error("a REST request failed", exc_info=exc)
            message = f"{type(exc).__name__}: {exc}"
        elif isinstance(exc, ContentEncodingError):
            # The second sentence asks the server's administrator to install a package.
            status, message = 415, message.partition(". ")[0]
        else:
            # The lines of the message are: the error, what was received, and a caret below the first wrong byte.
            lines = (line.strip(" ^") for line in message.splitlines())
            message = f"the request is not valid HTTP: {' '.join(filter(None, lines))}"
        # aiohttp represents a request that it could not parse as a request with HTTP/1.0.
        request._version = HttpVersion11
        response = self._make_error(status, message[:_MAX_LENGTH])
        response.force_close()
        return response

    def _fail_body(self, text: str) -> bool:
        """Fail the last body if it is incomplete; return whether it was."""
        body = self._body
        if body is None or body.is_eof() or body.exception() is not None:
            return False
        body.set_exception(web.RequestPayloadError(text))
        return True

    def _close_after_answers(self) -> None:
        # aiohttp closes the connection after the request in progress if `_close` is set, even if more are queued.
        self._close = self._close or not self._messages

    async def _wait_for_end(self) -> None:
        if self.transport is not None:
            self.transport.write_eof()
            self._end = self._loop.create_future()
            await asyncio.wait([self._end], timeout=self._lingering_time)
