"""The share of a training's time in which it waits for the next batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

_FILE = "input_wait.json"


class InputWait(NamedTuple):
    """How long a training took, and how much of this time a replica waited for input; seconds."""

    seconds: float
    waited: float


def measure_wait(read: Callable[[], Any]) -> tuple[Any, tf.Tensor]:
    """Read a batch in a graph, and measure the time of the read.

    Args:
      read: Returns tensors, such as those of the next batch.

    Returns:
      The result of `read`, and the seconds, a float32 scalar.
    """
    start = tf.timestamp()
    with tf.control_dependencies([start]):
        batch = read()
    with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
        return batch, tf.cast(tf.timestamp() - start, tf.float32)


def write(folder: str, wait: InputWait) -> None:
    """Write the wait to a folder, for `read`."""
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(f"{folder}/{_FILE}", "w") as file:
        file.write(json.dumps(wait._asdict()))


def read(folder: str) -> InputWait | None:
    """Read the wait from a folder; None if no training loop wrote it, but the user's own run_fn trained."""
    path = f"{folder}/{_FILE}"
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        return InputWait(**json.loads(file.read()))
