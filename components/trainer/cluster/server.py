"""A task that only serves: a ps, or a worker beside one. Imports TensorFlow and nothing else that takes time."""

from __future__ import annotations

import os
from pathlib import Path

import tensorflow as tf

from components.trainer.cluster.roles import Role

WORKER_FILE = "worker"
"""In the working directory of every worker beside a parameter server: its index."""
_LEAST_INTER_OP_THREADS = 4
"""A task pinned to one core stands still with fewer: its one thread waits for the answer that it should send."""


def inter_op_threads() -> int:
    """Threads that run ops side by side, in a task of a cluster."""
    return max(_LEAST_INTER_OP_THREADS, len(os.sched_getaffinity(0)))


def serve(role: Role, folder: Path) -> None:
    """Serves until it is killed.

    Args:
      role: this task's.
      folder: on this machine, this task's own; becomes its working directory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    # What tells workers apart, see steps.Coordinated.
    Path(WORKER_FILE).write_text(str(role.index))
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=inter_op_threads())
    config.gpu_options.allow_growth = True
    cluster = {kind: list(addresses) for kind, addresses in role.cluster.items() if kind != "evaluator"}
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster), job_name=role.kind, task_index=role.index, protocol="grpc", config=config
    )
    server.join()
