"""A fake of Dataflow's API at its HTTP boundary: it accepts a job, may run it, and reports its state."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.fakes.fake_service import JsonHandler, serving

_TIME = "2026-01-01T00:00:00Z"


@dataclass
class _Job:
    """A job that was created.

    Attributes:
      name: Name of the job.
      state: State of the job, as in `currentState` of the API.
      error: Message of the job if it has failed.
    """

    name: str
    state: str
    error: str = ""


@contextlib.contextmanager
def serve(
    submitted: list[tuple[str, dict[str, Any]]], run: Callable[[dict[str, Any]], None] | None = None
) -> Iterator[str]:
    """Serve Dataflow's API; yield the endpoint.

    Args:
      submitted: List to which (path, job) is appended whenever a job is created.
      run: Function that runs a job, and raises if the job fails. If None, every job is done at once.
    """
    jobs: dict[str, _Job] = {}

    def work(job_id: str, content: dict[str, Any]) -> None:
        assert run is not None
        job = jobs[job_id]
        try:
            run(content)
            job.state = "JOB_STATE_DONE"
        except Exception as error:
            job.error, job.state = f"{type(error).__name__}: {error}", "JOB_STATE_FAILED"

    def describe(job_id: str) -> dict[str, str]:
        job = jobs[job_id]
        return {
            "id": job_id,
            "name": job.name,
            "currentState": job.state,
            "currentStateTime": _TIME,
            "createTime": _TIME,
        }

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            body = self.body()
            if "/jobs" not in self.path:
                self.respond({})
                return
            content, job_id = json.loads(body), f"job-{len(submitted)}"
            submitted.append((self.path, content))
            jobs[job_id] = _Job(content["name"], "JOB_STATE_RUNNING" if run else "JOB_STATE_DONE")
            if run:
                threading.Thread(target=work, args=(job_id, content), daemon=True).start()
            self.respond(describe(job_id))

        def do_GET(self) -> None:
            path = self.path.partition("?")[0].split("/")
            if "jobs" not in path:
                # Google's client asks for the bucket of a staged file.
                self.respond({})
                return
            job_id, *more = path[path.index("jobs") + 1 :]
            if more == ["messages"]:
                error = jobs[job_id].error
                message = {"id": "1", "time": _TIME, "messageImportance": "JOB_MESSAGE_ERROR", "messageText": error}
                self.respond({"jobMessages": [message]} if error else {})
            else:
                self.respond(describe(job_id))

    with serving(Handler) as port:
        # Beam does not accept a numeric host.
        yield f"http://localhost:{port}"
