"""The interface of optimizer steps, through which a training loop uses any strategy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from components.models import sharding
from components.trainer.cluster import heartbeat

ReplicaStep = Callable[[Any], tf.Tensor]
"""A function that updates the variables from a batch, and returns the batch's loss, a float32 scalar; called in a
replica."""


class Stop(NamedTuple):
    """Why a training stops.

    Attributes:
      preempted: Whether a process received SIGTERM, so that the training continues later.
      finished: Whether the training is over.
    """

    preempted: bool = False
    finished: bool = False


class Steps(Protocol):
    """Runs optimizer steps.

    Attributes:
      steps_per_call: Minimum number of steps for an efficient call.
      together: Whether other processes take the same steps, so that no process can stop alone.
      input_wait: Seconds that a replica has waited for batches so far; the mean of the replicas.
    """

    steps_per_call: int
    together: bool
    input_wait: float

    def run(self, count: int, local_stop: Callable[[], Stop]) -> tuple[float, Stop]:
        """Run steps, and count them in the loop's optimizer.

        Args:
          count: Number of steps.
          local_stop: Returns whether this process must stop.

        Returns:
          The mean loss, and whether any process must stop; all processes that take the steps together get the same
          answer.
        """

    def collect(self) -> None:
        """Give the loop's network and optimizer the weights and moments of the last step."""


def divide_into_closures(count: int, workers: int, steps_per_call: int) -> list[int]:
    """Divide steps into closures; every worker gets the same number, so that no worker waits for another at the end."""
    closures = min(count, workers * -(-count // steps_per_call))
    return [(count + number) // closures for number in range(closures)]


def report_steps_by_worker(steps_by_worker: Mapping[int, int]) -> None:
    """Log the number of steps that each worker has taken so far, and send it to the supervisor."""
    steps = {f"worker-{number}": count for number, count in sorted(steps_by_worker.items())}
    logging.info("steps by worker: %s", ", ".join(f"{worker} {count}" for worker, count in steps.items()))
    heartbeat.send_status("steps", steps)


def connect_ps_to_chief(count: int) -> None:
    """Let every ps open its connection to the chief, which it needs to save a checkpoint.

    TensorFlow opens it with the first checkpoint. If that is the one after SIGTERM, the operator may have removed the
    host name of the chief with the job.

    Args:
      count: Number of ps.
    """

    def sum_on_ps() -> tf.Tensor:
        with tf.device("/job:chief/task:0/device:CPU:0"):
            # Grappler would copy a constant to the ps.
            value = tf.random.uniform([])
        values = []
        for task in range(count):
            with tf.device(f"/job:ps/task:{task}/device:CPU:0"):
                values.append(value + 1.0)
        return tf.add_n(values)

    tf.function(sum_on_ps, autograph=False)()


def report_bytes_by_ps(variables: Iterable[tf.Variable]) -> None:
    """Log the bytes of variables on each ps, and send them to the supervisor."""
    sizes = sharding.count_bytes_by_task(variables)
    logging.info("bytes of variables: %s", ", ".join(f"{task} {size:,}" for task, size in sorted(sizes.items())))
    heartbeat.send_status("variables", sizes)
