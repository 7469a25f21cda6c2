"""ElasticSteps on a real cluster, whose step counts the rows of its batch; prints the counts after each epoch, as JSON.

A separate program, because worker_group_program, whose servers it uses, has to fork them before TensorFlow starts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from components.base.processes import exit_now
from components.features import feature_names
from components.trainer.cluster.task_server import inter_op_threads
from components.trainer.cluster.tf_config import Role
from tests.support.programs import worker_group_program

ROWS, BATCH = 48, 4


def coordinate(cluster: dict[str, tuple[str, ...]], start: Any) -> None:
    """Run the chief: an epoch with two workers, one with three, and one after a loss."""
    import tensorflow as tf

    from components.trainer.cluster.membership import ElasticWorkers
    from components.trainer.config import TrainingConfig
    from components.trainer.elastic_steps import ElasticSteps
    from components.trainer.input_pipeline import InputPipeline
    from components.trainer.steps import Stop

    file = str(Path("rows").absolute())
    lists = pa.large_list(pa.int64())
    ids = pa.array([[row] for row in range(ROWS)], lists)
    labels = pa.array([[0.0]] * ROWS, pa.large_list(pa.float32()))
    parquet.write_table(pa.table({"id": ids, feature_names.LABEL: labels}), file, row_group_size=10)
    spec = {
        "id": tf.io.FixedLenFeature([], tf.int64),
        feature_names.LABEL: tf.io.FixedLenFeature([], tf.float32),
    }
    config = TrainingConfig(cache=sys.argv[1], shuffle_buffer=15)
    for name in ("ps-0", "worker-0", "worker-2"):
        start(name)
    tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads())
    workers = ElasticWorkers(Role("chief", 0, cluster), 2, lambda shape, dtype: [1] * len(shape))
    with workers.group.strategy.scope():
        counts = tf.Variable(tf.zeros([ROWS], tf.int64))
        iterations = tf.Variable(0, dtype=tf.int64)

    def step(batch: Any) -> tf.Tensor:
        features, _ = batch
        counts.scatter_add(tf.IndexedSlices(tf.ones([BATCH], tf.int64), features["id"]))
        return tf.constant(1.0)

    steps = ElasticSteps(workers, step, InputPipeline([file], spec, config, BATCH), iterations, steps_per_closure=2)
    epochs = []

    def epoch() -> None:
        loss, _ = steps.run(ROWS // BATCH, Stop)
        epochs.append([loss, sorted(workers.used), sorted(set(counts.numpy().tolist()))])

    def until(present: set[int]) -> None:
        while workers._membership.latest != present:
            time.sleep(0.05)

    epoch()
    start("worker-1")
    until({0, 1, 2})
    epoch()
    os.kill(int(Path("worker-0.pid").read_text()), signal.SIGKILL)
    until({1, 2})
    epoch()
    sys.stdout.write(json.dumps(epochs))
    exit_now(0)


if __name__ == "__main__":
    worker_group_program.main(coordinate)
