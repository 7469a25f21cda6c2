"""gRPC for small requests of many clients, not all of them friendly: one message in, one message out.

To gRPC's library every method takes a stream of messages, which looks the same to a client that sends one. Of a method
that takes one message, the library reads it before anybody can refuse it, for as long as a client likes to send it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

import grpc

from components.serving.server.refusal import RequestError, failed, invalid, late, overloaded
from components.serving.server.room import Room

_SERVERS = 256
"""That share the port, and with it the connections. Each takes one request per turn of the event loop, however many
wait; with more of them than connections, half as many again are answered, for a third less CPU."""
_SLOW_SECONDS = 0.25
"""For which a message may be on its way without being counted; a small one is there with its first bytes."""
_SLOW = 16
"""Messages that may be on their way for longer; how large they are is not known before they are there."""
_LOOK_SECONDS = 0.1
"""Between two looks for messages that are slow."""

Method = Callable[[bytes], Awaitable[bytes]]
"""A message → its answer, both serialized; raises a RequestError."""


class Rpc:
    """Servers at one port.

    A client whose message does not arrive in time is told so (DEADLINE_EXCEEDED). One that has gone is not waited for:
    its answer is cancelled.

    Args:
      services: service → method → what answers it.
      room: for messages.
      client_seconds: that a client may take to send one.
    """

    def __init__(self, services: Mapping[str, Mapping[str, Method]], room: Room, client_seconds: float) -> None:
        self._handlers = [
            grpc.method_handlers_generic_handler(
                service,
                {name: grpc.stream_unary_rpc_method_handler(_Handler(self, each)) for name, each in methods.items()},
            )
            for service, methods in services.items()
        ]
        self._room, self._client_seconds = room, client_seconds
        self._loop = asyncio.get_running_loop()
        self._servers: list[Any] = []
        # The requests whose message is on its way, the oldest first, and since when.
        self._coming: dict[Any, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._refusals: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> int:
        """Starts to listen; returns the port.

        Raises:
          OSError: the port is taken.
        """
        # A port that may be shared is shared with anybody, another process of ours too.
        with socket.socket() as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind((host, port))
        options = [
            ("grpc.max_receive_message_length", self._room.most_bytes),
            # Until a client has said that it speaks HTTP/2.
            ("grpc.server_handshake_timeout_ms", round(1000 * self._client_seconds)),
            ("grpc.so_reuseport", 1),
        ]
        for _ in range(_SERVERS):
            server = grpc.aio.server(handlers=self._handlers, options=options)
            try:
                port = server.add_insecure_port(f"{host}:{port}")
            except RuntimeError as error:
                raise OSError(f"port {port} of {host} cannot be listened at: {error}") from error
            self._servers.append(server)
        for server in self._servers:
            await server.start()
        return port

    async def close(self) -> None:
        """Takes no more requests, and waits for those that are being sent or answered."""
        await asyncio.gather(*(server.stop(self._client_seconds) for server in self._servers))

    async def answer(self, method: Method, context: Any) -> bytes:
        """The answer to one request; empty where the status says why there is none."""
        self._coming[context] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)
        size = 0
        try:
            try:
                message = await context.read()
            finally:
                self._coming.pop(context, None)
            if message is grpc.aio.EOF:
                raise invalid("expected a message, received none")
            self._room.hold(size := len(message))
            if self._room.is_too_small(size):
                raise overloaded("too many large requests are in memory; try again")
            return await method(message)
        except grpc.aio.BaseError:
            # It has been refused already, or the server ends.
            raise
        except Exception as error:
            _tell(context, error)
            return b""
        finally:
            self._room.hold(-size)

    def _look(self) -> None:
        """Refuses the messages that are too slow, or too many of those that are slow."""
        now = self._loop.time()
        refused: dict[Any, RequestError] = {}
        slow = 0
        for context, since in self._coming.items():
            if now - since < _SLOW_SECONDS:
                break
            if now - since > self._client_seconds:
                refused[context] = late("the message did not arrive in time")
            elif slow == _SLOW:
                refused[context] = overloaded("too many messages are on their way; try again")
            else:
                slow += 1
        for context, error in refused.items():
            del self._coming[context]
            task = self._loop.create_task(_refuse(context, error))
            self._refusals.add(task)
            task.add_done_callback(self._refusals.discard)
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._look) if self._coming else None


class _Handler:
    """What gRPC's library calls for a request.

    It asks twice each time whether that is asynchronous: of an object that could be awaited it sees so at its first
    look, of a function after several, which take a twentieth of a request.
    """

    def __init__(self, rpc: Rpc, method: Method) -> None:
        self._rpc, self._method = rpc, method

    def __call__(self, _messages: Any, context: Any) -> Awaitable[bytes]:
        return self._rpc.answer(self._method, context)

    def __await__(self) -> Generator[Any, None, bytes]:
        raise TypeError("it is called, and what it returns is awaited")


def _tell(context: Any, error: Exception) -> None:
    """Says why a request is not answered.

    Where its method returns, that is better than `abort`, which raises what holds all that it was raised about.
    """
    refused = error if isinstance(error, RequestError) else failed(error)
    context.set_code(refused.code)
    context.set_details(str(refused))


async def _refuse(context: Any, error: RequestError) -> None:
    """Ends a request whose handler waits for the message; that wait ends with it."""
    with contextlib.suppress(grpc.aio.BaseError):
        await context.abort(error.code, str(error))
