"""Runs the real HAProxy on a written file, in front of fake model servers that record their requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import programs
from fake_service import JsonHandler, serving

_SECONDS = 60
"""No test waits for this: it only keeps one that hangs from holding up all the others."""


@dataclass
class FakeModelServers:
    """A model server: knows which labels it has loaded, and answers a request with its path.

    Attributes:
      labels: that it has loaded.
      fault: how it answers what it is asked for: not at all, or as if it had the label no longer.
      paths: that it was asked for.
      address: of its REST API.
    """

    labels: set[str]
    fault: Literal["", "hangs up", "no such label"] = ""
    paths: list[str] = field(default_factory=list)
    address: str = ""

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Serve."""
        fake = self

        class Handler(JsonHandler):
            def do_GET(self) -> None:
                label = self.path.rpartition("/")[2]
                self.respond({"state": "AVAILABLE" if label in fake.labels else "LOADING"})

            def do_POST(self) -> None:
                self.body()
                fake.paths.append(self.path)
                label = re.search(r"/labels/(\w+):", self.path)
                if fake.fault == "hangs up":
                    self.close_connection = True
                elif fake.fault or (label and label[1] not in fake.labels):
                    self.respond({"error": "no such label"}, 404)
                else:
                    self.respond({"path": self.path})

        with serving(Handler) as port:
            self.address = f"127.0.0.1:{port}"
            yield


def free_address() -> str:
    """Return an address that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@dataclass
class Balancer:
    """HAProxy at work; `reload` is the command that has it read its file again."""

    rest: str
    metrics: str
    reload: tuple[str, ...]

    def ask(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Status of the answer, and the path that a server was asked for."""
        connection = http.client.HTTPConnection(self.rest, timeout=30)
        try:
            connection.request("POST", path, b"{}", headers or {})
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content)["path"] if answer.status == 200 else ""
        finally:
            connection.close()

    def listens(self) -> bool:
        """Whether it takes connections."""
        with contextlib.suppress(OSError), socket.create_connection(self.metrics.rsplit(":", 1), timeout=1):
            return True
        return False

    def wait_until_up(self, backend: str, servers: int) -> None:
        """Wait until so many servers of a backend pass their checks."""
        soon = time.monotonic() + _SECONDS
        while (up := self._up(backend)) != servers:
            assert time.monotonic() < soon, f"{up} servers of {backend} are up"

    def _up(self, backend: str) -> int:
        connection = http.client.HTTPConnection(self.metrics, timeout=30)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        states = re.findall(rf'^haproxy_server_status{{proxy="{backend}",server="\w+",state="UP"}} (\d)', text, re.M)
        return sum(map(int, states))


@contextlib.contextmanager
def haproxy(config: Path, rest_port: str, metrics: str) -> Iterator[Balancer]:
    """Start HAProxy; it listens when this is entered.

    Args:
      config: the written file.
      rest_port: where it says that requests are taken.
      metrics: address of its metrics, parsed from the file.
    """
    process = subprocess.Popen(
        [programs.find("haproxy"), "-W", "-db", "-f", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        balancer = Balancer(rest_port, metrics, ("kill", "-USR2", str(process.pid)))
        soon = time.monotonic() + _SECONDS
        while not balancer.listens():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < soon
        yield balancer
    finally:
        process.terminate()
        process.communicate()
