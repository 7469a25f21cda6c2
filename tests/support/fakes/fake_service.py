"""What the fakes of HTTP services share: a handler that reads and writes JSON, and a server in a thread."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    """A handler without a log on the terminal."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        """Return the content of the request."""
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def answer(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a response."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def respond(self, payload: Any, status: int = 200) -> None:
        """Send a response with JSON."""
        self.answer(status, json.dumps(payload).encode(), {"Content-Type": "application/json"})

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve on loopback; yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
