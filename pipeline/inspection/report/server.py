"""The HTTP server of the pages about runs: on the loopback interface, read-only."""

from __future__ import annotations

import errno
import socketserver
import sys
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from components.errors import InputError, MachineError
from pipeline.inspection.report import run_page
from pipeline.inspection.report.live_pages import HTML, Pages, Response

HOST = "127.0.0.1"
_PORTS = 65535
_TIMEOUT_SECONDS = 10.0
"""Of a client that sends its request, or receives the response."""
_HOST_NAMES = (HOST, "localhost")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(socketserver.ThreadingTCPServer):
    """Listens as soon as it is created; each request has a thread.

    Args:
      pages: to be served.
      port: to listen on; 0: any free port.

    Raises:
      InputError: the port is out of range.
      MachineError: the port cannot be listened on.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, pages: Pages, port: int) -> None:
        if not 0 <= port <= _PORTS:
            raise InputError(
                f"--port: expected 0 to {_PORTS}, received {port}", "name another port; 0 takes any free port"
            )
        self.pages = pages
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            why = "another program listens on it" if error.errno == errno.EADDRINUSE else error.strerror
            raise MachineError(
                f"cannot listen on port {port} of {HOST}: {why}",
                "name another port with --port; 0 takes any free port",
            ) from error

    @property
    def address(self) -> str:
        """The URL of the list of runs."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that disconnects or times out; prints any other exception."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _TIMEOUT_SECONDS

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def __getattr__(self, name: str) -> Callable[[], None]:
        # The base class looks up any method as do_<METHOD>.
        if not name.startswith("do_"):
            raise AttributeError(name)
        return lambda: self._send(Response(405, b"These pages are read-only.\n"), True)

    def _respond(self, with_body: bool) -> None:
        # DNS rebinding: a foreign site can point its own name to this server, but it cannot change the Host header.
        if _host_name(self.headers.get("Host", "")) not in _HOST_NAMES:
            message = f"Host: expected {' or '.join(_HOST_NAMES)}.\n"
            self._send(Response(421, message.encode()), with_body)
            return
        client_tag = self.headers.get("If-None-Match", "").removeprefix("W/").strip('"')
        try:
            response = self.server.pages.respond(self.path.partition("?")[0], client_tag)
        except Exception:
            traceback.print_exc()
            response = Response(500, b"This page cannot be created; see the error in the server's terminal.\n")
        self._send(response, with_body)

    def _send(self, response: Response, with_body: bool) -> None:
        self.send_response(response.status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        live = response.media_type == HTML
        self.send_header("Content-Security-Policy", f"{run_page.policy(live)}; frame-ancestors 'none'")
        if response.status == 405:
            self.send_header("Allow", "GET, HEAD")
        if response.tag:
            self.send_header("ETag", f'"{response.tag}"')
        if response.status != 304:
            self.send_header("Content-Type", response.media_type)
            self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(response.body)

    def version_string(self) -> str:
        """Returns the Server header; it does not reveal versions."""
        return "runs"

    def log_message(self, *_: Any) -> None:
        """Logs no requests."""


def _host_name(host: str) -> str:
    """Returns the host name without the port, which differs behind an SSH tunnel."""
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()
