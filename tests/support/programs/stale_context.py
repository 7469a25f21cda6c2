"""A ps, and clients that create a variable on it one after the other and are killed; prints the ps' memory as JSON."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from components.base.processes import exit_now, signal_at_parents_death
from components.compat.grpc import TaskStatus, close_context
from components.trainer.cluster.task_server import serve
from components.trainer.cluster.tf_config import Role

MIB, CLIENTS = 256, 3
"""Size of the variable, and number of clients."""


def main(closes: bool) -> None:
    """Print the memory of the ps, in MiB, while each of the clients runs.

    Args:
      closes: Whether the context of a client is closed after the client was killed.
    """
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    chief, ps = (f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets)
    for sock in sockets:
        sock.close()
    cluster = {"chief": (chief,), "ps": (ps,)}
    server = _fork(lambda: serve(Role("ps", 0, cluster), Path(tempfile.mkdtemp(dir=Path.cwd()))))
    sizes = []
    for _ in range(CLIENTS):
        read, write = os.pipe()
        client = _fork(lambda: _create_variable(cluster, write))  # noqa: B023 - called in this round
        context = int(os.fdopen(read).readline())
        sizes.append(psutil.Process(server).memory_info().rss >> 20)
        os.kill(client, signal.SIGKILL)
        os.waitpid(client, 0)
        if closes:
            # gRPC must not run in a process that forks.
            os.waitpid(_fork(lambda: _close(ps, chief, context)), 0)  # noqa: B023
    os.kill(server, signal.SIGKILL)
    sys.stdout.write(json.dumps(sizes))
    exit_now(0)


def _fork(function: Callable[[], object]) -> int:
    """Call a function in a new process that ends with this process; return its ID."""
    parent = os.getpid()
    if pid := os.fork():
        return pid
    signal_at_parents_death(signal.SIGKILL, parent)
    function()
    os._exit(0)


def _close(ps: str, chief: str, context: int) -> None:
    assert close_context(ps, context, 10.0)
    assert close_context(ps, context, 10.0), "it is unknown now"
    assert not close_context(chief, context, 1.0), "nobody answers there"


def _create_variable(cluster: dict[str, tuple[str, ...]], pipe: int) -> None:
    import tensorflow as tf

    from components.compat.coordinator import find_context

    status = TaskStatus(cluster["ps"][0])
    while not status.answers(3.0):
        time.sleep(0.05)
    spec = tf.train.ClusterSpec(cluster)
    tf.config.experimental_connect_to_cluster(spec, job_name="chief", make_master_device_default=False)
    with tf.device("/job:ps/task:0/device:CPU:0"):
        variable = tf.Variable(tf.random.uniform([MIB << 18]))
        float(tf.reduce_sum(variable[:10]))
    os.write(pipe, f"{find_context()}\n".encode())
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1] == "close")
