"""Beam's own job service, or a worker pool of Beam's, as a process; ends with its stdin.

python beam_servers.py job_service|pool

The first line on stdout is its address. A pool then writes a line for each worker that it is asked for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
      address: host:port.
      log: what it writes to stdout and stderr, the address first.
    """

    address: str
    log: Path

    @property
    def workers_started(self) -> int:
        """How many workers a pool has been asked for."""
        return self.log.read_text().count("asked for worker")


@contextlib.contextmanager
def served(kind: str, log: Path) -> Iterator[Server]:
    """A job service or a pool, as long as the context lasts.

    Args:
      kind: `job_service` or `pool`.
      log: gets its output.
    """
    # A pool starts its workers as `python`, whichever is the first on PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, __file__, kind, str(log)],
            cwd=ROOT,
            env={**os.environ, "PATH": path, "PYTHONPATH": paths, "TF_USE_LEGACY_KERAS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, log.read_text()
        yield Server(address, log)
    finally:
        # Its workers with it.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _pool() -> str:
    from apache_beam.runners.worker import worker_pool_main

    class Pool(worker_pool_main.BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]
        def StartWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 - Beam's name
            sys.stderr.write(f"asked for worker {request.worker_id}\n")
            sys.stderr.flush()
            return super().StartWorker(request, context)

    address, _pool.server = Pool.start(use_process=True)  # type: ignore[attr-defined]  # kept alive
    return str(address)


def _job_service() -> str:
    from apache_beam.runners.portability import local_job_service

    # It tells workers this machine's name, which in a network of the tests' own leads nowhere.
    socket.getfqdn = lambda name="": "localhost"
    return f"localhost:{local_job_service.LocalJobServicer().start_grpc_server(0)}"


def _main(kind: str) -> None:
    sys.stdout.write({"pool": _pool, "job_service": _job_service}[kind]() + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _main(sys.argv[1])
