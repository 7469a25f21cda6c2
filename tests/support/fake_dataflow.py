"""A fake of Dataflow's API at its HTTP boundary: it accepts a job, and reports it as done."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOB = {
    "id": "a-job",
    "name": "job",
    "currentState": "JOB_STATE_DONE",
    "currentStateTime": "2026-01-01T00:00:00Z",
    "createTime": "2026-01-01T00:00:00Z",
}


@contextlib.contextmanager
def serve(submitted: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Serves Dataflow's API; gives the endpoint.

    Args:
      submitted: gets (path, job) of each job that is created.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            if "/jobs" in self.path:
                submitted.append((self.path, json.loads(body)))
            self._respond(JOB)

        def do_GET(self) -> None:
            self._respond({} if self.path.partition("?")[0].endswith("/messages") else JOB)

        def _respond(self, payload: dict[str, Any]) -> None:
            body = json.dumps(payload).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            # Beam takes no number for a host.
            yield f"http://localhost:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
