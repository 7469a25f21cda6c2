"""Serves the pages on runs on this machine alone: over HTTP, to be looked at and nothing else."""

from __future__ import annotations

import errno
import socketserver
import sys
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from components.errors import InputError, MachineError
from pipeline.report import page
from pipeline.report.live import HTML, Answer, Pages

HOST = "127.0.0.1"
_PORTS = 65535
_PATIENCE_SECONDS = 10.0
"""That a client may take to send its request, or to take the answer."""
_NAMES = (HOST, "localhost")
_EVERY = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(socketserver.ThreadingTCPServer):
    """Listens as soon as it is made; a thread for each request.

    Args:
      pages: to be served.
      port: to listen at; 0: any that is free.

    Raises:
      InputError: there is no such port.
      MachineError: it cannot be had.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, pages: Pages, port: int) -> None:
        if not 0 <= port <= _PORTS:
            raise InputError(
                f"--port: expected 0 to {_PORTS}, received {port}", "name another; 0 takes any that is free"
            )
        self.pages = pages
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            why = "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror
            raise MachineError(
                f"port {port} of {HOST} cannot be had: {why}", "name another with --port; 0 takes any that is free"
            ) from error

    @property
    def address(self) -> str:
        """The list's URL."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or never says a word, is no error of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _PATIENCE_SECONDS

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def __getattr__(self, name: str) -> Callable[[], None]:
        # Whatever method comes is looked up as do_<METHOD>.
        if not name.startswith("do_"):
            raise AttributeError(name)
        return lambda: self._send(Answer(405, b"These pages can only be read.\n"), True)

    def _answer(self, with_body: bool) -> None:
        # A page elsewhere can have its own name lead here, and would then read ours; it cannot change its name.
        if _name(self.headers.get("Host", "")) not in _NAMES:
            told = f"Expected the name {' or '.join(_NAMES)}.\n"
            self._send(Answer(421, told.encode()), with_body)
            return
        known = self.headers.get("If-None-Match", "").removeprefix("W/").strip('"')
        try:
            answer = self.server.pages.answer(self.path.partition("?")[0], known)
        except Exception:
            traceback.print_exc()
            answer = Answer(500, b"This page cannot be made; the server's screen tells why.\n")
        self._send(answer, with_body)

    def _send(self, answer: Answer, with_body: bool) -> None:
        self.send_response(answer.status)
        for name, value in _EVERY.items():
            self.send_header(name, value)
        live = answer.kind == HTML
        self.send_header("Content-Security-Policy", f"{page.policy(live)}; frame-ancestors 'none'")
        if answer.status == 405:
            self.send_header("Allow", "GET, HEAD")
        if answer.tag:
            self.send_header("ETag", f'"{answer.tag}"')
        if answer.status != 304:
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        """Nobody needs to know what serves here."""
        return "runs"

    def log_message(self, *_: Any) -> None:
        """The screen stays quiet."""


def _name(host: str) -> str:
    """Without its port, which another one may lead to by a tunnel."""
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()
