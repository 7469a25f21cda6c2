"""TensorFlow Serving's own model server, which `make model-server` builds, on free ports."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.flink_cluster import accepts_connections, free_ports
from tests.support.servers.serving import Server

PROGRAM = Path(__file__).parents[3] / ".cache" / "model_server" / "tensorflow_model_server"
needs_model_server = pytest.mark.skipif(
    not PROGRAM.exists(), reason="no tensorflow_model_server: `make model-server` builds it"
)


@contextlib.contextmanager
def model_server(folder: Path, *options: str) -> Iterator[Server]:
    """Yield a process of tensorflow_model_server that answers both APIs, killed at the end.

    Args:
      folder: Folder for its log.
      options: Options of the program; the ports are added.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rpc, rest = free_ports(2)
    command = [str(PROGRAM), f"--port={rpc}", f"--rest_api_port={rest}", *options]
    # The log has a line for each version and its warm-up requests.
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    log = folder / "model_server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        server = Server(process, int(rest), int(rpc), log)
        server.until(lambda: accepts_connections(rest) and accepts_connections(rpc))
        yield server
    finally:
        process.kill()
        process.wait()
