"""A fake of Vertex AI's REST API on loopback: it accepts jobs and schedules, and records the requests."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import google_credentials
import pytest


@dataclass
class Api:
    """What has been sent.

    Attributes:
      address: for `vertex.endpoint`.
      sent: method, path, question and body of each request, in their order.
      schedules: those there are, by their resource names.
      refuses: the status and the message that whatever is made is answered with, if it is refused.
    """

    address: str = ""
    sent: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
    refuses: tuple[int, str] | None = None

    def made(self, kind: str) -> list[tuple[dict[str, str], Any]]:
        """Question and body of the requests that make something of a kind, such as pipelineJobs."""
        return [
            (query, body) for method, path, query, body in self.sent if method == "POST" and path.endswith(f"/{kind}")
        ]


@contextlib.contextmanager
def serve(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Serves the API; Google's client finds credentials for it, whose key is made here.

    Args:
      folder: for the credentials.
      patch: of the environment.
    """
    api = Api()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(api)) as server:
        api.address = f"http://127.0.0.1:{server.server_address[1]}"
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(google_credentials.write(folder, f"{api.address}/token")))
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._take()
            self._answer(200, {"schedules": list(api.schedules.values())})

        def do_POST(self) -> None:
            path, query, body = self._take()
            if path == "/token":
                self._answer(200, google_credentials.TOKEN)
            elif api.refuses:
                self._answer(api.refuses[0], {"error": {"code": api.refuses[0], "message": api.refuses[1]}})
            elif path.endswith("/pipelineJobs"):
                self._answer(200, {**body, "name": f"{path.removeprefix('/v1/')}/{query['pipelineJobId']}"})
            else:
                name = f"{path.removeprefix('/v1/')}/{len(api.sent)}"
                api.schedules[name] = {**body, "name": name}
                self._answer(200, api.schedules[name])

        def do_DELETE(self) -> None:
            path, _, _ = self._take()
            del api.schedules[path.removeprefix("/v1/")]
            self._answer(200, {"name": f"{path.removeprefix('/v1/')}/operations/1", "done": True})

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
            pass

        def _take(self) -> tuple[str, dict[str, str], Any]:
            payload = urllib.parse.urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_json = self.headers.get("Content-Type") == "application/json"
            body = json.loads(content) if is_json and content else content.decode()
            assert payload.path == "/token" or self.headers["Authorization"].startswith("Bearer ")
            api.sent.append((self.command, payload.path, dict(urllib.parse.parse_qsl(payload.query)), body))
            return payload.path, api.sent[-1][2], body

        def _answer(self, status: int, payload: Any) -> None:
            content = json.dumps(payload).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
