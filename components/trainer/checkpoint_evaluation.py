"""Evaluation of checkpoints, while training goes on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from components.models import folds
from components.trainer import checkpoint
from components.trainer.input_pipeline import Batch
from components.trainer.prediction_head import PredictionHead
from components.trainer.tensorboard_writer import TensorBoardWriter

_POLL_SECONDS = 1.0


def evaluate(
    network: tf_keras.Model, head: PredictionHead, batches: Iterable[Batch], writer: TensorBoardWriter, step: int
) -> float:
    """Write a point of the loss and of each metric.

    Args:
      network: with the checkpoint's weights.
      head: loss and metrics.
      batches: the rows, see `input_pipeline.evaluation_batches`.
      writer: writes the points.
      step: the checkpoint's.

    Returns:
      The mean loss.
    """
    values, rows = measure(network, head, batches)
    writer.scalars(step, **values)
    writer.flush()
    logging.info("step %d: evaluated %d rows: %s", step, rows, values)
    loss: float = values["loss"]
    return loss


def measure(network: tf_keras.Model, head: PredictionHead, batches: Iterable[Batch]) -> tuple[dict[str, float], int]:
    """Measures the loss and the metrics of a network.

    Args:
      network: from transformed features to logits.
      head: loss and metrics.
      batches: the rows, see `input_pipeline.evaluation_batches`.

    Returns:
      The mean loss and each metric by name, weighted if the rows have weights; and the number of rows.
    """
    found = scores(network, head, batches)
    return {"loss": head.mean(found.losses, found.weight), **found.metrics}, len(found.losses)


class Scores(NamedTuple):
    """What a network has on some rows.

    Attributes:
      losses: of each row, times its weight if the rows have weights; float32 [rows].
      weight: the sum of the weights, or the number of rows.
      metrics: those of the prediction head, by name.
    """

    losses: npt.NDArray[np.float32]
    weight: float
    metrics: dict[str, float]


# AutoGraph would convert the metrics of tf_keras: seconds of work without any effect.
@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def scores(network: tf_keras.Model, head: PredictionHead, batches: Iterable[Batch]) -> Scores:
    """Measures the loss of each row, and the metrics; arguments as of `measure`."""
    losses, total = [], 0.0
    for metric in head.metrics:
        metric.reset_state()
    for features, label, *weight in batches:
        inputs, fold = folds.split(features)
        logits = folds.held_out(network(inputs, training=False), fold)
        losses.append(head.losses(label, logits, *weight).numpy())
        total += head.weight_of(label, *weight)
        for metric in head.metrics:
            metric.update_state(label, head.join_members(logits), *weight)
    metrics = {metric.name: float(metric.result()) for metric in head.metrics}
    return Scores(np.concatenate(losses), total, metrics)


def follow(
    folder: str,
    last_step: int,
    restored: Callable[[str], tf_keras.Model],
    on_checkpoint: Callable[[int, tf_keras.Model], object],
    is_over: Callable[[], bool],
) -> None:
    """Poll a folder for checkpoints of other tasks, until the last.

    Args:
      folder: of the checkpoints.
      last_step: the step of the last one.
      restored: from a checkpoint's path to the network with its weights.
      on_checkpoint: called with each new checkpoint's step and network.
      is_over: whether training has ended before `last_step`.
    """
    for step in _new(folder, last_step, is_over):
        try:
            network = restored(checkpoint.path(folder, step))
        except (tf.errors.NotFoundError, tf.errors.DataLossError) as error:
            logging.warning("checkpoint %d was deleted or is damaged: %s", step, error)
        else:
            on_checkpoint(step, network)


def _new(folder: str, last_step: int, is_over: Callable[[], bool]) -> Iterator[int]:
    seen = 0
    while seen < last_step:
        # Asked first: the last checkpoint is written before training is over.
        ended = is_over()
        newest = next(iter(checkpoint.steps(folder)), 0)
        if newest > seen:
            yield newest
            seen = newest
        elif ended:
            return
        else:
            time.sleep(_POLL_SECONDS)
