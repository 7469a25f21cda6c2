"""aiohttp still has what components/compat/aiohttp.py replaces, and still needs the replacement."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from aiohttp import HttpVersion10, web, web_protocol

from components.compat.aiohttp import Connection, Runner


@pytest.mark.both_lines
def test_connections_have_the_attributes_that_the_replacement_uses() -> None:
    used = {"_messages", "_waiter", "_close", "_lingering_time", "_loop"}
    missing = used - set(web.RequestHandler.__slots__) - set(web_protocol.BaseProtocol.__slots__)
    assert not missing, "change components/compat/aiohttp.py"
    assert {"status", "exc", "message"} <= {field.name for field in web_protocol._ErrInfo.__attrs_attrs__}
    assert set(inspect.signature(web.RequestHandler.handle_error).parameters) == set(
        inspect.signature(Connection.handle_error).parameters
    )


@pytest.mark.both_lines
def test_aiohttp_does_not_do_the_same_by_itself() -> None:
    if web_protocol.ERROR.version != HttpVersion10:
        pytest.fail(
            "aiohttp answers invalid HTTP with HTTP/1.1: remove request._version of components/compat/aiohttp.py"
        )

    async def close_half() -> object:
        return web.Server(lambda _: web.Response())().eof_received()  # type: ignore[arg-type, return-value]

    assert asyncio.run(close_half()) is None, "aiohttp keeps half-closed connections: remove Connection.eof_received"


@pytest.mark.both_lines
def test_runner_makes_its_own_connections() -> None:
    async def make_connection() -> object:
        runner = Runner(web.Application(), lambda status, text: web.Response(status=status, text=text))
        await runner.setup()
        assert runner.server is not None
        try:
            return runner.server()
        finally:
            await runner.cleanup()

    assert isinstance(asyncio.run(make_connection()), Connection)
