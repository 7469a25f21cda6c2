"""A ps and three workers as processes, and a coordinator that uses some of them; prints what it finds, as JSON.

It is a separate program because the servers must be forked before TensorFlow starts a thread.
"""

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
from typing import Any

from components.base.processes import exit_now, signal_at_parents_death
from components.compat.grpc import FAIL_FAST, TaskStatus
from components.trainer.cluster.task_server import inter_op_threads, serve
from components.trainer.cluster.tf_config import Role

SLOTS, STEPS = 3, 60


Coordinate = Callable[[dict[str, tuple[str, ...]], Callable[[str], Any]], None]
"""The chief's part: the cluster, and what starts a task → nothing."""


def main(coordinate: Coordinate) -> None:
    """Run a chief and the servers that it starts."""
    os.environ.update(FAIL_FAST)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(SLOTS + 2)]
    chief, ps, *workers = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]
    for sock in sockets:
        sock.close()
    cluster = {"chief": (chief,), "ps": (ps,), "worker": tuple(workers)}
    # The servers are forked by a process that stays without threads.
    read, write = os.pipe()
    parent = os.getpid()
    if not os.fork():
        signal_at_parents_death(signal.SIGKILL, parent)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.close(write)
        _fork_on_request(read, cluster)
    os.close(read)
    coordinate(cluster, lambda name: os.write(write, f"{name}\n".encode()))


def _fork_on_request(requests: int, cluster: dict[str, tuple[str, ...]]) -> None:
    parent = os.getpid()
    for line in os.fdopen(requests):
        kind, index = line.strip().split("-")
        if not os.fork():
            signal_at_parents_death(signal.SIGKILL, parent)
            folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
            (Path.cwd() / f"{kind}-{index}.pid").write_text(str(os.getpid()))
            serve(Role(kind, int(index), cluster), folder)


def _coordinate(cluster: dict[str, tuple[str, ...]], start: Callable[[str], Any]) -> None:
    import tensorflow as tf

    from components.compat.coordinator import WorkerGroup

    status = [TaskStatus(address) for address in cluster["worker"]]
    here = Path.cwd()
    report: dict[str, Any] = {}

    def answers() -> list[bool]:
        return [worker_status.answers(3.0) for worker_status in status]

    def until(expected: list[bool]) -> None:
        while answers() != expected:
            time.sleep(0.05)

    def kill(name: str, by: signal.Signals = signal.SIGKILL) -> None:
        os.kill(int((here / f"{name}.pid").read_text()), by)

    for name in ("ps-0", "worker-0", "worker-2"):
        start(name)
    until([True, False, True])
    tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads())
    group = WorkerGroup(cluster, "chief", {0, 2}, None)
    with group.strategy.scope():
        counts = tf.Variable(tf.zeros([SLOTS], tf.int64))

    def index() -> tf.Tensor:
        return tf.strings.to_number(tf.io.read_file("worker"), tf.int64)

    examples = iter(
        group.coordinator.create_per_worker_dataset(
            tf.function(lambda: tf.data.Dataset.from_tensors(index()).repeat(), input_signature=[])
        )
    )

    @tf.function
    def step(examples: Any) -> tf.Tensor:
        number = next(examples)
        counts.scatter_add(tf.IndexedSlices(tf.ones([1], tf.int64), tf.reshape(number, [1])))
        return number

    def schedule() -> list[Any]:
        return [group.coordinator.schedule(step, args=(examples,)) for _ in range(STEPS)]

    def workers_of_steps(results: list[Any]) -> list[int]:
        """Wait for all steps; return the workers that have executed them."""
        while not group.wait(1.0):
            pass
        return sorted({int(result.fetch()) for result in results})

    report["two of three"] = workers_of_steps(schedule())
    # The thread of the absent worker may be the last to run.
    while group.find_lost_workers() != {1}:
        time.sleep(0.01)
    start("worker-1")
    until([True, True, True])
    group.replace({0, 1, 2})
    # A worker takes a step only when its thread is the first, so it may need several rounds.
    while workers_of_steps(schedule()) != [0, 1, 2]:
        pass
    report["after one has joined"] = [0, 1, 2]
    kill("worker-0")
    kill("worker-2")
    until([False, True, False])
    report["while two are lost"] = workers_of_steps(schedule())
    group.replace({1})
    report["one of three"] = workers_of_steps(schedule())
    kill("worker-1")
    until([False, False, False])
    results = schedule()
    report["done without a worker"] = group.wait(1.0)
    start("worker-2")
    until([False, False, True])
    group.replace({2})
    report["after the last was replaced"] = workers_of_steps(results)
    report["steps"] = int(tf.reduce_sum(counts.read_value()))
    kill("worker-2", by=signal.SIGSTOP)
    # A thread may answer until the signal has reached it.
    while not _is_stopped(int((here / "worker-2.pid").read_text())):
        time.sleep(0.01)
    report["frozen"] = status[2].answers(0.5)
    sys.stdout.write(json.dumps(report))
    exit_now(0)


def _is_stopped(pid: int) -> bool:
    """Return whether all threads of a process are stopped."""
    states = (file.read_text().rpartition(") ")[2][0] for file in Path(f"/proc/{pid}/task").glob("*/stat"))
    return set(states) == {"T"}


if __name__ == "__main__":
    main(_coordinate)
