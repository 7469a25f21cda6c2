"""A fake of Vertex AI's REST API on loopback: it accepts jobs and schedules, and records the requests."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes import google_credentials
from tests.support.fakes.fake_service import JsonHandler, serving


@dataclass
class Api:
    """The state of the fake API, with the received requests.

    Attributes:
      address: for `vertex.endpoint`.
      sent: (method, path, query, body) per request, in order of arrival.
      schedules: Schedules by their resource names.
      jobs: CustomJobs by their resource names.
      refuses: Status and message that answer every creation, or None to accept it.
    """

    address: str = ""
    sent: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    refuses: tuple[int, str] | None = None

    def creations(self, kind: str) -> list[tuple[dict[str, str], Any]]:
        """Return query and body of the requests that create resources of a kind, such as pipelineJobs."""
        return [
            (query, body) for method, path, query, body in self.sent if method == "POST" and path.endswith(f"/{kind}")
        ]


@contextlib.contextmanager
def serve(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Serve the API; Google's client finds credentials for it, whose key is made here.

    Args:
      folder: for the credentials.
      patch: of the environment.
    """
    api = Api()
    with serving(_handler(api)) as port:
        api.address = f"http://127.0.0.1:{port}"
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(google_credentials.write(folder, f"{api.address}/token")))
        yield api


def _handler(api: Api) -> type[JsonHandler]:
    class Handler(JsonHandler):
        def do_GET(self) -> None:
            path, _, _ = self._take()
            kind = path.rpartition("/")[2]
            self.respond({kind: list((api.jobs if kind == "customJobs" else api.schedules).values())})

        def do_POST(self) -> None:
            path, query, body = self._take()
            if path == "/token":
                self.respond(google_credentials.TOKEN)
            elif api.refuses:
                self.respond({"error": {"code": api.refuses[0], "message": api.refuses[1]}}, api.refuses[0])
            elif path.endswith("/pipelineJobs"):
                self.respond({**body, "name": f"{path.removeprefix('/v1/')}/{query['pipelineJobId']}"})
            elif path.endswith(":cancel"):
                self.respond({})
            else:
                name = f"{path.removeprefix('/v1/')}/{len(api.sent)}"
                resources = api.jobs if path.endswith("/customJobs") else api.schedules
                resources[name] = {**body, "name": name}
                self.respond(resources[name])

        def do_DELETE(self) -> None:
            path, _, _ = self._take()
            del (api.jobs if "/customJobs/" in path else api.schedules)[path.removeprefix("/v1/")]
            self.respond({"name": f"{path.removeprefix('/v1/')}/operations/1", "done": True})

        def _take(self) -> tuple[str, dict[str, str], Any]:
            url = urllib.parse.urlsplit(self.path)
            content = self.body()
            is_json = self.headers.get("Content-Type") == "application/json"
            body = json.loads(content) if is_json and content else content.decode()
            assert url.path == "/token" or self.headers["Authorization"].startswith("Bearer ")
            api.sent.append((self.command, url.path, dict(urllib.parse.parse_qsl(url.query)), body))
            return url.path, api.sent[-1][2], body

    return Handler
