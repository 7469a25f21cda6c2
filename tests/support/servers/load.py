"""Sends many requests over a few open connections, like a busy client, and counts the answers."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
import time
from collections import Counter
from concurrent.futures import Future

Answer = tuple[int, bytes]
"""Status and body; the status 0 where the connection broke before the whole answer was there."""

_PATIENCE_SECONDS = 300.0


class Load:
    """Repeats the same requests; enter the context to start.

    Args:
      address: host:port.
      path: Path of the requests.
      bodies: Bodies of the requests, sent in turn.
      pause: seconds between an answer and the next request of the same connection.
      connections: Number of parallel connections.

    Attributes:
      answers: Answer → number of times it was received.
      last: answer → when the last request that got it was sent, by time.monotonic.
      longest: Longest time from a request to its answer, in seconds.
    """

    def __init__(self, address: str, path: str, *bodies: bytes, connections: int = 16, pause: float = 0.0) -> None:
        self._host, _, self._port = address.rpartition(":")
        head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: "
        requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
        self._requests, self._connections, self._pause = itertools.cycle(requests), connections, pause
        self.answers: Counter[Answer] = Counter()
        self.last: dict[Answer, float] = {}
        self.longest = 0.0
        self._ended, self._total = False, 0
        self._awaited: tuple[Answer | None, int, Future[None]] | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._ask()), daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Receive the outstanding answers, and stop."""
        self._ended = True
        self._thread.join(_PATIENCE_SECONDS)
        assert not self._thread.is_alive(), f"a request was not answered within {_PATIENCE_SECONDS:g} s"

    def wait(self, more: int, answer: Answer | None = None) -> None:
        """Wait for this number of further answers, of one kind or of any."""
        reached: Future[None] = Future()
        self._awaited = (answer, self._count(answer) + more, reached)
        reached.result(_PATIENCE_SECONDS)

    def _count(self, answer: Answer | None) -> int:
        return self._total if answer is None else self.answers[answer]

    async def _ask(self) -> None:
        await asyncio.gather(*(self._connection() for _ in range(self._connections)))

    async def _connection(self) -> None:
        reader = writer = None
        while not self._ended:
            sent, stays = time.monotonic(), False
            try:
                if reader is None or writer is None:
                    reader, writer = await asyncio.open_connection(self._host, int(self._port))
                writer.write(next(self._requests))
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = re.search(rb"content-length: (\d+)", head)
                answer = int(head[9:12]), await reader.readexactly(int(length[1]) if length else 0)
                stays = b"connection: close" not in head
            except (OSError, asyncio.IncompleteReadError) as error:
                answer = 0, type(error).__name__.encode()
            self._note(answer, sent)
            await asyncio.sleep(self._pause)
            if not stays and writer is not None:
                writer.close()
                reader = writer = None
        if writer is not None:
            writer.close()

    def _note(self, answer: Answer, sent: float) -> None:
        self.answers[answer] += 1
        self._total += 1
        self.longest = max(self.longest, time.monotonic() - sent)
        self.last[answer] = max(sent, self.last.get(answer, sent))
        if self._awaited is not None:
            kind, count, reached = self._awaited
            if self._count(kind) >= count:
                self._awaited = None
                reached.set_result(None)
