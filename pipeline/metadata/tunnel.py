"""TLS to a database server for ML Metadata's library, which has none of its own that can be relied upon.

Its PostgreSQL client is built without TLS; its MySQL client encrypts, but looks at no certificate, or refuses all of
them (seen with release 1.16). So the library talks to a socket in a folder that only this user may enter, and a process
of its own, since the library holds the interpreter while it waits, hands everything on to the server, encrypted. It
ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from components.errors import MachineError
from pipeline.metadata.database import Database, Tls
from pipeline.metadata.drivers import encryption

Streams: TypeAlias = "tuple[asyncio.StreamReader, asyncio.StreamWriter]"

_READY = b"ready\n"
_AT_ONCE = 1 << 16

# PostgreSQL 15, Message Formats: SSLRequest, and AuthenticationSASL with the mechanism that is bound to a TLS channel.
_ASK = struct.pack("!ii", 8, 80877103)
_YES = b"S"
_SASL = 10
_BOUND = b"SCRAM-SHA-256-PLUS\0"
# MySQL 8, Client/Server Protocol: SSLRequest has these capabilities, then the greatest packet and the characters.
_PROTOCOL_41, _SSL, _SECURE = 0x0200, 0x0800, 0x8000
_SSL_REQUEST = struct.pack("<IIB23x", _PROTOCOL_41 | _SSL | _SECURE, 1 << 24, 8)
_OK, _ERR = 0x00, 0xFF


class Tunnel:
    """A socket that leads to a server.

    Args:
      database: on a server, with `tls`.

    Attributes:
      socket: where it is; its folder and port are what libpq takes for a host and a port.

    Raises:
      MachineError: it does not start.
    """

    def __init__(self, database: Database) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="metadata-")
        self.socket = Path(scratch.name) / f".s.PGSQL.{database.port}"
        command = [sys.executable, "-m", "pipeline.metadata.tunnel", json.dumps([asdict(database), str(self.socket)])]
        # So that this module is found from whatever folder, and files from the working directory.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        weakref.finalize(self, _end, process, scratch)
        if process.stdout is None or process.stdout.readline() != _READY:
            raise MachineError(f"no encrypted connection to {database}: its process has ended", "see its error above")


def _end(process: subprocess.Popen[bytes], scratch: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    scratch.cleanup()


async def _serve(database: Database, context: ssl.SSLContext, path: str) -> None:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whatever goes wrong ends the connection, and the library says that it has gone.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            connection = await asyncio.to_thread(socket.create_connection, (database.host, database.port))
            with contextlib.closing(connection):
                connection.setblocking(False)
                await _ON_SERVER[database.backend](connection, (reader, writer), context, database.host)

    await asyncio.start_unix_server(forward, path)
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    # Whoever has started this one holds the other end, and writes nothing: it is read to its end when that one ends.
    await asyncio.to_thread(sys.stdin.buffer.read)


async def _postgresql(connection: socket.socket, client: Streams, context: ssl.SSLContext, host: str) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, _ASK)
    if await loop.sock_recv(connection, 1) != _YES:
        return

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind, length = struct.unpack("!ci", await reader.readexactly(5))
        body = await reader.readexactly(length - 4)
        if kind == b"R" and struct.unpack_from("!i", body)[0] == _SASL:
            # The library, which knows of no TLS, would take this offer for somebody in between.
            body = body.replace(_BOUND, b"")
        writer.write(struct.pack("!ci", kind, len(body) + 4) + body)
        await _pump(reader, writer)

    server = await asyncio.open_connection(sock=connection, ssl=context, server_hostname=host)
    await _both(_pump(client[0], server[1]), answers(server[0], client[1]))


async def _mysql(connection: socket.socket, client: Streams, context: ssl.SSLContext, host: str) -> None:
    loop = asyncio.get_running_loop()
    header = await _received(connection, 4)
    greeting = bytearray(await _received(connection, int.from_bytes(header[:3], "little")))
    # Past the protocol's number, the server's version, the connection's, eight signs of its challenge, and a filler.
    place = greeting.index(0, 1) + 1 + 4 + 8 + 1
    offered = int.from_bytes(greeting[place : place + 2], "little")
    if greeting[0] == _ERR or not offered & _SSL:
        return
    await loop.sock_sendall(connection, len(_SSL_REQUEST).to_bytes(3, "little") + b"\1" + _SSL_REQUEST)
    server = await asyncio.open_connection(sock=connection, ssl=context, server_hostname=host)
    greeting[place : place + 2] = (offered & ~_SSL).to_bytes(2, "little")
    client[1].write(header + greeting)
    # The server has seen a packet more than the client has sent, until it lets the client in or not.
    ahead = 1

    async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while ahead:
            await _packet(reader, writer, lambda number, _: number + ahead)
        await _pump(reader, writer)

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def counted(number: int, content: bytes) -> int:
            nonlocal ahead
            before, ahead = ahead, int(content[:1] not in (bytes([_OK]), bytes([_ERR])))
            return number - before

        while ahead:
            await _packet(reader, writer, counted)
        await _pump(reader, writer)

    await _both(asked(client[0], server[1]), answered(server[0], client[1]))


_ON_SERVER: dict[str, Callable[[socket.socket, Streams, ssl.SSLContext, str], Awaitable[None]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
}


async def _received(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        some = await asyncio.get_running_loop().sock_recv(connection, size - len(received))
        if not some:
            raise OSError("the server has gone")
        received += some
    return received


async def _packet(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, renumber: Callable[[int, bytes], int]
) -> None:
    """Hands on one of MySQL's packets, with another number."""
    header = await reader.readexactly(4)
    content = await reader.readexactly(int.from_bytes(header[:3], "little"))
    writer.write(header[:3] + bytes([renumber(header[3], content) % 256]) + content)
    await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while some := await reader.read(_AT_ONCE):
        writer.write(some)
        await writer.drain()


async def _both(*ways: Awaitable[None]) -> None:
    """Both ways at once, until one of them has ended."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    for task in done:
        task.result()


def _main() -> None:
    told, path = json.loads(sys.argv[1])
    tls = Tls(**told.pop("tls"))
    context = encryption(tls)
    asyncio.run(_serve(Database(**told, tls=tls), context, path))


if __name__ == "__main__":
    _main()
