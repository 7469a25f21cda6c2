"""Beam's own job service as a process, and this project's worker pool as a fork of the node server."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from pipeline.orchestration.engines import worker_pool
from tests.support.servers.forked_command import ForkedCommand

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
      address: host:port.
      log: its output.
      pid: its process.
    """

    address: str
    log: Path
    pid: int

    @property
    def workers_started(self) -> int:
        """Return the number of a pool's workers that have connected."""
        return self.log.read_text().count("has connected")


def kill_starting_worker(pool: Server, job: ForkedCommand) -> None:
    """Kill the next worker that a pool starts for a new job, before the worker does anything."""
    [fork_server] = psutil.Process(pool.pid).children()
    before = {process.pid for process in fork_server.children()}
    starting: list[psutil.Process] = []
    while not starting:
        starting = [process for process in fork_server.children() if process.pid not in before]
        assert not job.has_ended()
    starting[0].kill()


@contextlib.contextmanager
def job_service(log: Path) -> Iterator[Server]:
    """Yield Beam's job service, which stops when the context ends."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TF_USE_LEGACY_KERAS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, log.read_text()
        yield Server(address, log, process.pid)
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def pool(folder: Path, start_seconds: float = 60) -> Iterator[Server]:
    """Yield a worker pool, which stops when the context ends.

    Args:
      folder: for its log.
      start_seconds: how long a worker may take to connect.
    """
    folder.mkdir()
    os.mkfifo(folder / "address")
    command = ForkedCommand(serve_pool, [str(folder), str(start_seconds)], ROOT, os.environ)
    try:
        yield Server((folder / "address").read_text(), folder / "log", command.pid)
    finally:
        command.kill()
        command.wait(10)


def serve_pool(arguments: Sequence[str]) -> int:
    """Serve a pool whose address is written to the pipe `address` of a folder, and its output to `log`."""
    folder = Path(arguments[0])
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    worker_pool.serve("localhost", 0, float(arguments[1]), lambda address: _write(folder / "address", address))
    return 0


def _write(pipe: Path, address: str) -> None:
    pipe.write_text(address)


def _main() -> None:
    from apache_beam.runners.portability import local_job_service

    # Beam passes this machine's name to workers, which does not resolve in the tests' private network.
    socket.getfqdn = lambda name="": "localhost"
    address = f"localhost:{local_job_service.LocalJobServicer().start_grpc_server(0)}"
    sys.stdout.write(address + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _main()
