"""Runs the real HAProxy on a written file, in front of fake model servers that record their requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.support.fakes.fake_service import JsonHandler, serving
from tests.support.programs import programs

_SECONDS = 60
"""No test waits for this: it only keeps one that hangs from holding up all the others."""


@dataclass
class FakeModelServers:
    """A fake model server that knows its loaded labels and answers a request with the request's path.

    Attributes:
      labels: Labels of the loaded versions; "taxi" if the only version of a server without labels is loaded.
      fault: How it fails: it does not answer, or answers as if the label were not loaded.
      paths: Paths of the requests so far.
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
                if label := re.search(r"/labels/(\w+)/metadata$", self.path):
                    is_loaded = label[1] in fake.labels
                    self.respond({"metadata": "signature_def"} if is_loaded else {}, 200 if is_loaded else 404)
                else:
                    state = "AVAILABLE" if fake.labels & {"canary", "taxi"} else "LOADING"
                    versions = [{"version": str(number), "state": state} for number in range(1, 5)]
                    self.respond({"model_version_status": versions})

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
    """Return an address that nobody listens at.

    Its port is below the range from which the kernel takes the ports of outgoing connections.
    """
    end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        # The tests seed the other generator, so parallel tests would get the same numbers.
        address = ("127.0.0.1", random.SystemRandom().randrange(10_000, end))
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(address)
            return f"{address[0]}:{address[1]}"


@dataclass
class Balancer:
    """A running HAProxy; `reload` is the command that makes it read its file again."""

    rest: str
    metrics: str
    reload: tuple[str, ...]

    def ask(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Send a request; return the status, and the path that reached a server."""
        connection = http.client.HTTPConnection(self.rest, timeout=30)
        try:
            connection.request("POST", path, b"{}", headers or {})
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content)["path"] if answer.status == 200 else ""
        finally:
            connection.close()

    def listens(self) -> bool:
        """Return whether HAProxy accepts connections."""
        with contextlib.suppress(OSError), socket.create_connection(self.metrics.rsplit(":", 1), timeout=1):
            return True
        return False

    def wait_until_up(self, backend: str, servers: int) -> None:
        """Wait until this number of a backend's servers pass their health checks."""
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
      rest_port: Address for requests, parsed from the file.
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
