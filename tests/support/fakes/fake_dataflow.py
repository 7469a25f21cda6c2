"""A fake of Dataflow's API at its HTTP boundary: it accepts a job, and reports it as done."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.support.fakes.fake_service import JsonHandler, serving

JOB = {
    "id": "a-job",
    "name": "job",
    "currentState": "JOB_STATE_DONE",
    "currentStateTime": "2026-01-01T00:00:00Z",
    "createTime": "2026-01-01T00:00:00Z",
}


@contextlib.contextmanager
def serve(submitted: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Serve Dataflow's API; yield the endpoint.

    Args:
      submitted: List to which (path, job) is appended whenever a job is created.
    """

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            body = self.body()
            if "/jobs" in self.path:
                submitted.append((self.path, json.loads(body)))
            self.respond(JOB)

        def do_GET(self) -> None:
            self.respond({} if self.path.partition("?")[0].endswith("/messages") else JOB)

    with serving(Handler) as port:
        # Beam does not accept a numeric host.
        yield f"http://localhost:{port}"
