"""A client of Flink's REST API, and a guard process that cancels a job when the job's node has ended.

This file imports only the standard library, so that the guard starts in a tenth of a second.

Source: Flink 1.19, "REST API".
"""

from __future__ import annotations

import contextlib
import json
import select
import sys
import time
import urllib.request
from typing import Any
from urllib.error import HTTPError

_SECONDS = 10.0
"""Time limit of a request."""
_SUBMISSION_SECONDS = 180.0
"""Time for a job server to submit a job, which includes the upload of its class path of 150 MB."""
_POLL_SECONDS = 0.5
_ENDED = ("FINISHED", "CANCELED", "FAILED")


class Flink:
    """A Flink cluster.

    Args:
      address: host:port of its REST API.
    """

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}"

    def get(self, path: str) -> Any:
        """Return the decoded JSON of a path, such as /overview.

        Raises:
          OSError: The API does not answer.
        """
        with urllib.request.urlopen(self._url + path, timeout=_SECONDS) as response:  # noqa: S310 - http
            return json.load(response)

    def config(self) -> dict[str, str]:
        """Return the settings of the job manager that are set explicitly, by name."""
        return {setting["key"]: setting["value"] for setting in self.get("/jobmanager/config")}

    def job(self, name: str) -> str | None:
        """Return the ID of the newest job with this name; None if Flink does not know such a job."""
        jobs = [job for job in self.get("/jobs/overview")["jobs"] if job["name"] == name]
        return max(jobs, key=lambda job: int(job["start-time"]))["jid"] if jobs else None

    def page(self, job: str) -> str:
        """Return the URL of a job's web page."""
        return f"{self._url}/#/job/{job}/overview"

    def has_ended(self, job: str) -> bool:
        """Return whether a job has finished, failed or been cancelled."""
        return self.get(f"/jobs/{job}")["state"] in _ENDED

    def cancel(self, job: str) -> None:
        """Cancel a job unless it has ended, and wait for its end."""
        request = urllib.request.Request(f"{self._url}/jobs/{job}?mode=cancel", method="PATCH")  # noqa: S310 - http
        try:
            urllib.request.urlopen(request, timeout=_SECONDS).close()  # noqa: S310 - http
        except HTTPError as error:
            # Flink answers with 409 if the job has already ended.
            if error.code != 409:
                raise
        while not self.has_ended(job):
            time.sleep(_POLL_SECONDS)


def _guard(flink: Flink, name: str) -> None:
    """Print the web page of a job once Flink knows the job, and cancel the job if stdin ends before a line arrives.

    The job server may still be submitting the job when stdin ends, so the guard looks for it until a deadline.
    """
    job, deadline = None, None
    while deadline is None or time.monotonic() < deadline:
        if deadline is None:
            readable, _, _ = select.select([sys.stdin], [], [], None if job else _POLL_SECONDS)
            if readable and sys.stdin.readline():
                return
            if readable:
                deadline = time.monotonic() + _SUBMISSION_SECONDS
        else:
            time.sleep(_POLL_SECONDS)
        # The job manager may be restarting.
        with contextlib.suppress(OSError):
            if job is None and (job := flink.job(name)):
                _print(f"job {name}: {flink.page(job)}")
            if job and deadline:
                if not flink.has_ended(job):
                    _print(f"job {name} is cancelled: its node has ended or is submitting it again")
                    flink.cancel(job)
                return


def _print(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    _guard(Flink(sys.argv[1]), sys.argv[2])
