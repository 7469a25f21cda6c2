"""A look at checkpoints on the eval split while training goes on: every row of it, each once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from components.trainer import checkpoint
from components.trainer.curves import Curves
from components.trainer.target import Target

_LOOK_SECONDS = 1.0


def evaluate(network: Any, target: Target, dataset: Any, curves: Curves, step: int) -> float:
    """Writes a point of the loss and of each metric; returns the loss.

    Args:
      network: with the checkpoint's weights.
      target: loss and metrics.
      dataset: the eval split, as `input.examples` gives it.
      curves: where the points go.
      step: the checkpoint's.
    """
    values, rows = measure(network, target, dataset)
    curves.scalars(step, **values)
    logging.info("step %d: evaluated %d rows: %s", step, rows, values)
    loss: float = values["loss"]
    return loss


# AutoGraph would rewrite the metrics of tf_keras, which takes seconds and changes nothing.
@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def measure(network: Any, target: Target, dataset: Any) -> tuple[dict[str, float], int]:
    """The mean loss and each metric by name, and of how many rows.

    Args:
      network: from transformed features to logits.
      target: loss and metrics.
      dataset: the eval split, as `input.examples` gives it.
    """
    total, rows = 0.0, 0
    for metric in target.metrics:
        metric.reset_state()
    for features, label in dataset:
        logits = network(features, training=False)
        losses = target.losses(label, logits)
        total, rows = total + float(tf.reduce_sum(losses)), rows + len(label)
        for metric in target.metrics:
            metric.update_state(label, target.joined(logits))
    return {"loss": total / rows, **{metric.name: float(metric.result()) for metric in target.metrics}}, rows


def follow(folder: str, last_step: int, restored: Callable[[str], Any], look: Callable[[int, Any], object]) -> None:
    """Looks at each new checkpoint until the last, in a task beside those that write them.

    Args:
      folder: of the checkpoints.
      last_step: the step of the last one.
      restored: from a checkpoint's path to the network with its weights.
      look: called with each checkpoint's step and network.
    """
    for step in _new(folder, last_step):
        try:
            network = restored(checkpoint.path(folder, step))
        except (tf.errors.NotFoundError, tf.errors.DataLossError) as error:
            logging.warning("checkpoint %d has gone, or is damaged: %s", step, error)
        else:
            look(step, network)


def _new(folder: str, last_step: int) -> Iterator[int]:
    seen = 0
    while seen < last_step:
        newest = next(iter(checkpoint.steps(folder)), 0)
        if newest > seen:
            yield newest
            seen = newest
        else:
            time.sleep(_LOOK_SECONDS)
