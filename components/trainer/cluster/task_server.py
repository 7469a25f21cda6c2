"""A task that runs a TensorFlow server: a ps, or a worker of a cluster with ps. It imports TensorFlow, but not TFX."""

from __future__ import annotations

import os
from pathlib import Path

import tensorflow as tf

from components.trainer import parquet_source
from components.trainer.cluster.loopback import limit_to_loopback
from components.trainer.cluster.tf_config import Role

WORKER_FILE = "worker"
"""The file with the worker's index, in the working directory of every worker of a cluster with ps."""
_LEAST_INTER_OP_THREADS = 4
"""With fewer threads, a task on one core deadlocks: its only thread waits for a response that it must send itself."""


def inter_op_threads() -> int:
    """Return the number of inter-op threads of a cluster's task."""
    return max(_LEAST_INTER_OP_THREADS, len(os.sched_getaffinity(0)))


def serve(role: Role, folder: Path) -> None:
    """Run a TensorFlow server until the process is killed.

    Args:
      role: Role of this task.
      folder: Local folder that only this task uses; it becomes the working directory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    # Workers read it in ParameterServerSteps and ElasticSteps.
    Path(WORKER_FILE).write_text(str(role.index))
    # The graph that the chief sends calls these functions in this process.
    parquet_source.register()
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=inter_op_threads())
    cluster = tf.train.ClusterSpec(dict(role.cluster))
    with limit_to_loopback(role):
        server = tf.distribute.Server(
            cluster, job_name=role.kind, task_index=role.index, protocol="grpc", config=config
        )
    server.join()
