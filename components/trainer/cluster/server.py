"""A task that only serves: a ps, or a worker beside one. Imports TensorFlow and nothing else that takes time."""

from __future__ import annotations

import os
from pathlib import Path

import tensorflow as tf

from components.trainer.cluster.roles import Role
from components.trainer.steps import WORKER_FILE
from components.trainer.strategy import inter_op_threads


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
