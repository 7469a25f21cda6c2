"""Another machine: a network namespace, which a pair of virtual interfaces connects with the namespace of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import TracebackType

_PROGRAM = """
import socket, sys

print("ready", flush=True)
connection = None
for line in sys.stdin:
    try:
        if line.strip() == "ask":
            connection.sendall(b"?")
            print(connection.recv(1), flush=True)
        else:
            host, port = line.split()
            connection = socket.create_connection((host, int(port)), 10)
            print("connected", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


def is_possible() -> bool:
    """Return whether this process may create namespaces and interfaces."""
    command = ["unshare", "--net", "ip", "link", "add", "type", "veth"]
    programs = all(map(shutil.which, ("ip", "nsenter", "unshare")))
    return programs and os.geteuid() == 0 and not subprocess.run(command, capture_output=True, check=False).returncode


class AnotherMachine:
    """A second machine on this machine's network; use it in a with statement.

    Attributes:
      interface: Name of this machine's interface to the network.
      hosts: This machine's addresses there, IPv4 and IPv6.
    """

    def __init__(self) -> None:
        self.interface = f"t{os.getpid()}"
        self.hosts = ("198.51.100.1", "fd00::1")

    def connect(self, host: str, port: int) -> str:
        """Connect from the other machine; return "connected", or the error's name, such as ConnectionRefusedError."""
        return self._call(f"{host} {port}")

    def ask(self) -> str:
        """Send a byte over the last connection; return the byte that comes back, as a literal, or the error's name."""
        return self._call("ask")

    def __enter__(self) -> AnotherMachine:
        command = ["unshare", "--net", sys.executable, "-c", _PROGRAM]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._read() == "ready"
        there = ("nsenter", "-t", str(self._process.pid), "-n")
        peer = ("peer", "name", "peer", "netns", str(self._process.pid))
        _run("ip", "link", "add", self.interface, "type", "veth", *peer)
        for entry, name, last in ((), self.interface, 1), (there, "peer", 2):
            _run(*entry, "ip", "address", "add", f"198.51.100.{last}/24", "dev", name)
            # Without the search for duplicates, which takes seconds.
            _run(*entry, "ip", "address", "add", f"fd00::{last}/64", "dev", name, "nodad")
            _run(*entry, "ip", "link", "set", name, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Before the process: the kernel removes the interfaces of its namespace at some later time.
        _run("ip", "link", "delete", self.interface)
        self._process.communicate()

    def _call(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)
