"""A private Redis, Debian's, on loopback and with a password."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs import programs

_PASSWORD = "open-sesame"  # noqa: S105 - of a test's server  # pragma: allowlist secret
_SECONDS = 60


@dataclass(frozen=True)
class Redis:
    """A running server.

    Attributes:
      port: on loopback.
    """

    port: int

    @property
    def url(self) -> str:
        """URL of its first database, with the password."""
        return f"redis://:{_PASSWORD}@127.0.0.1:{self.port}/0"

    def command(self, *words: str) -> str:
        """Run a command with Redis' own client, and return the answer."""
        client = ["redis-cli", "-p", str(self.port), *words]
        environment = {**os.environ, "REDISCLI_AUTH": _PASSWORD}
        return subprocess.run(client, env=environment, capture_output=True, text=True, timeout=_SECONDS).stdout.strip()


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Redis]:
    """Yield a server that keeps nothing on disk except its log, which is in this folder."""
    program = programs.find("redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    settings = f'port {port}\nbind 127.0.0.1\nrequirepass {_PASSWORD}\nsave ""\nappendonly no\ndir {folder}\n'
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", program, "-"], stdin=subprocess.PIPE, stdout=log, stderr=log
        )
    try:
        assert process.stdin is not None
        process.stdin.write(settings.encode())
        process.stdin.close()
        server, deadline = Redis(port), time.monotonic() + _SECONDS
        while server.command("PING") != "PONG":
            assert process.poll() is None, (folder / "redis.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield server
    finally:
        process.kill()
        process.wait()
