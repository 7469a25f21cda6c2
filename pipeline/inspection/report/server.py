"""Serves the pages about runs over HTTP, read-only and on the loopback interface only."""

from __future__ import annotations

import errno
import socketserver
import sys
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from components.base.errors import InputError, MachineError
from pipeline.inspection.report import run_page
from pipeline.inspection.report.live_pages import HTML, Pages, Response

HOST = "127.0.0.1"
_PORTS = 65535
_TIMEOUT_SECONDS = 10.0
"""Timeout for a client that sends its request or receives the response."""
_HOST_NAMES = (HOST, "localhost")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(socketserver.ThreadingTCPServer):
    """An HTTP server that listens as soon as it is created, and handles each request in a thread.

    Args:
      pages: The pages to serve.
      port: Port to listen on. If 0, any free port.

    Raises:
      InputError: The port number is out of range.
      MachineError: The port is in use or not permitted.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, pages: Pages, port: int) -> None:
        if not 0 <= port <= _PORTS:
            raise InputError(
                f"--port: expected 0 to {_PORTS}, received {port}", "name another port, or 0 for any free port"
            )
        self.pages = pages
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            reason = "another program listens on it" if error.errno == errno.EADDRINUSE else error.strerror
            raise MachineError(
                f"cannot listen on port {port} of {HOST}: {reason}",
                "name another port with --port, or 0 for any free port",
            ) from error

    @property
    def address(self) -> str:
        """URL of the list of runs."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the exception of a request, unless the client disconnected or timed out."""
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
        # The base class looks up do_<METHOD> for any HTTP method. Answer all except GET and HEAD with 405.
        if not name.startswith("do_"):
            raise AttributeError(name)
        return lambda: self._send(Response(405, b"These pages are read-only.\n"), True)

    def _respond(self, with_body: bool) -> None:
        # Prevent DNS rebinding: another site can resolve its name to this server's address, but the browser then sends
        # that name in the Host header.
        if _parse_host_name(self.headers.get("Host", "")) not in _HOST_NAMES:
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
        """Return the value of the Server header, which does not reveal versions."""
        return "runs"

    def log_message(self, *_: Any) -> None:
        """Do nothing, because requests are not logged."""


def _parse_host_name(host: str) -> str:
    """Return the host name without the port, which may be another one behind an SSH tunnel."""
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()
