"""Zones of a data centre: network namespaces that only the balancer's network connects, and that can fail."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.servers.serving import Server

needs_zones = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip: `make programs` installs ip"
)


@dataclass
class Zone:
    """A network namespace.

    Attributes:
      address: Address of its servers.
      servers: Its servers.
    """

    address: str
    servers: list[Server] = field(default_factory=list)
    _holder: int = 0

    @property
    def prefix(self) -> tuple[str, ...]:
        """Return the command that starts another command in this zone."""
        return ("nsenter", f"--net=/proc/{self._holder}/ns/net")

    def lose_power(self) -> None:
        """Kill all servers and cut the network at once."""
        self.lose_network()
        for server in self.servers:
            server.process.kill()

    def lose_network(self) -> None:
        """Drop all packets without an answer, as a failed switch does."""
        _run(*self.prefix, "ip", "link", "set", "zone", "down")

    def recover(self) -> None:
        """Connect the network again."""
        _run(*self.prefix, "ip", "link", "set", "zone", "up")


@contextlib.contextmanager
def zones(count: int) -> Iterator[list[Zone]]:
    """Yield zones that this process reaches, but that do not reach each other."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_zone(number)) for number in range(1, count + 1)]


@contextlib.contextmanager
def _zone(number: int) -> Iterator[Zone]:
    link = f"zone{number}"
    # The namespace exists as long as this process.
    holder = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "ip link set lo up; echo; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        zone = Zone(f"10.77.{number}.2", _holder=holder.pid)
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "zone", "netns", str(holder.pid))
        _run("ip", "address", "add", f"10.77.{number}.1/24", "dev", link)
        _run("ip", "link", "set", link, "up")
        _run(*zone.prefix, "ip", "address", "add", f"{zone.address}/24", "dev", "zone")
        zone.recover()
        yield zone
    finally:
        # The kernel removes the link some time after the namespace; the next test needs its name.
        _run("ip", "link", "delete", link)
        holder.kill()
        holder.communicate()


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}: {ended.stderr}"
