"""A local proxy that adds TLS to the connections of ML Metadata's library, whose own TLS cannot be relied upon.

The library's PostgreSQL client is built without TLS; its MySQL client encrypts, but checks no certificate, or refuses
every certificate (seen with release 1.16). The library therefore connects to a Unix socket in a folder that only this
user may enter, and the proxy forwards the connection to the server with TLS. The proxy is a process of its own, because
the library holds Python's interpreter lock while it waits; it ends with the process that started it.
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
from pipeline.core.metadata.location import Database, Tls
from pipeline.core.metadata.sql import ssl_context

Streams: TypeAlias = "tuple[asyncio.StreamReader, asyncio.StreamWriter]"

_READY = b"ready\n"
_BUFFER_BYTES = 1 << 16

# PostgreSQL 15, Message Formats: SSLRequest, and AuthenticationSASL with the mechanism that is bound to a TLS channel.
_POSTGRESQL_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_POSTGRESQL_ACCEPTED = b"S"
_SASL = 10
_CHANNEL_BINDING = b"SCRAM-SHA-256-PLUS\0"
# MySQL 8, Client/Server Protocol: SSLRequest has these capabilities, the maximum packet size and the character set.
_PROTOCOL_41, _SSL, _SECURE = 0x0200, 0x0800, 0x8000
_SSL_REQUEST = struct.pack("<IIB23x", _PROTOCOL_41 | _SSL | _SECURE, 1 << 24, 8)
_OK, _ERR = 0x00, 0xFF


class TlsProxy:
    """A process that forwards the connections of a Unix socket to a server, with TLS.

    Args:
      database: on a server, with `tls`.

    Attributes:
      socket: the path of the socket. libpq takes the socket's folder for a host, and `.s.PGSQL.<port>` for its name.

    Raises:
      MachineError: the process does not start.
    """

    def __init__(self, database: Database) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="metadata-")
        self.socket = Path(scratch.name) / f".s.PGSQL.{database.port}"
        command = [
            sys.executable,
            "-m",
            "pipeline.core.metadata.tls_proxy",
            json.dumps([asdict(database), str(self.socket)]),
        ]
        # The module is found from any working directory; the paths of the PEM files start at the working directory.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        weakref.finalize(self, _end, process, scratch)
        if process.stdout is None or process.stdout.readline() != _READY:
            raise MachineError(
                f"{database}: expected an encrypted connection, received an exit of the TLS proxy's process",
                "read the error that the process printed above, and fix metadata.tls",
            )


def _end(process: subprocess.Popen[bytes], scratch: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    scratch.cleanup()


async def _serve(database: Database, context: ssl.SSLContext, path: str) -> None:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Any error closes the connection, and the library reports a lost connection.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            connection = await asyncio.to_thread(socket.create_connection, (database.host, database.port))
            with contextlib.closing(connection):
                connection.setblocking(False)
                await _FORWARD[database.backend](connection, (reader, writer), context, database.host)

    await asyncio.start_unix_server(forward, path)
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    # The parent process holds the other end and writes nothing: the end of the file is the parent's exit.
    await asyncio.to_thread(sys.stdin.buffer.read)


async def _postgresql(connection: socket.socket, client: Streams, context: ssl.SSLContext, host: str) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, _POSTGRESQL_SSL_REQUEST)
    if await loop.sock_recv(connection, 1) != _POSTGRESQL_ACCEPTED:
        return

    async def responses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind, length = struct.unpack("!ci", await reader.readexactly(5))
        body = await reader.readexactly(length - 4)
        if kind == b"R" and struct.unpack_from("!i", body)[0] == _SASL:
            # The library has no TLS of its own, so it cannot use this mechanism, and takes the offer for an attack.
            body = body.replace(_CHANNEL_BINDING, b"")
        writer.write(struct.pack("!ci", kind, len(body) + 4) + body)
        await _pump(reader, writer)

    server = await asyncio.open_connection(sock=connection, ssl=context, server_hostname=host)
    await _both(_pump(client[0], server[1]), responses(server[0], client[1]))


async def _mysql(connection: socket.socket, client: Streams, context: ssl.SSLContext, host: str) -> None:
    loop = asyncio.get_running_loop()
    header = await _received(connection, 4)
    greeting = bytearray(await _received(connection, int.from_bytes(header[:3], "little")))
    # After the protocol version, the server's version, the connection id, 8 bytes of the challenge and a filler byte.
    offset = greeting.index(0, 1) + 1 + 4 + 8 + 1
    capabilities = int.from_bytes(greeting[offset : offset + 2], "little")
    if greeting[0] == _ERR or not capabilities & _SSL:
        return
    await loop.sock_sendall(connection, len(_SSL_REQUEST).to_bytes(3, "little") + b"\1" + _SSL_REQUEST)
    server = await asyncio.open_connection(sock=connection, ssl=context, server_hostname=host)
    greeting[offset : offset + 2] = (capabilities & ~_SSL).to_bytes(2, "little")
    client[1].write(header + greeting)
    # Until the end of the authentication, the server's packet numbers are one ahead of the client's: our SSLRequest.
    ahead = 1

    async def requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while ahead:
            await _packet(reader, writer, lambda number, _: number + ahead)
        await _pump(reader, writer)

    async def responses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def renumbered(number: int, content: bytes) -> int:
            nonlocal ahead
            before, ahead = ahead, int(content[:1] not in (bytes([_OK]), bytes([_ERR])))
            return number - before

        while ahead:
            await _packet(reader, writer, renumbered)
        await _pump(reader, writer)

    await _both(requests(client[0], server[1]), responses(server[0], client[1]))


_FORWARD: dict[str, Callable[[socket.socket, Streams, ssl.SSLContext, str], Awaitable[None]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
}


async def _received(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = await asyncio.get_running_loop().sock_recv(connection, size - len(received))
        if not part:
            raise OSError("the server closed the connection")
        received += part
    return received


async def _packet(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, renumber: Callable[[int, bytes], int]
) -> None:
    """Forwards one MySQL packet with another sequence number."""
    header = await reader.readexactly(4)
    content = await reader.readexactly(int.from_bytes(header[:3], "little"))
    writer.write(header[:3] + bytes([renumber(header[3], content) % 256]) + content)
    await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(_BUFFER_BYTES):
        writer.write(part)
        await writer.drain()


async def _both(*directions: Awaitable[None]) -> None:
    """Forwards in both directions until one of them ends."""
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()


def _main() -> None:
    fields, path = json.loads(sys.argv[1])
    tls = Tls(**fields.pop("tls"))
    asyncio.run(_serve(Database(**fields, tls=tls), ssl_context(tls), path))


if __name__ == "__main__":
    _main()
