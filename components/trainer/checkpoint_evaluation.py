"""Evaluation of checkpoints while training continues."""

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
    """Measure a checkpoint, and write a point of the loss and every metric.

    Args:
      network: The network with the weights of the checkpoint.
      head: Loss and metrics.
      batches: The rows, see `input_pipeline.evaluation_batches`.
      writer: Writer of the points.
      step: Step of the checkpoint.

    Returns:
      The mean loss.
    """
    scores = compute_scores(network, head, batches)
    loss = head.mean(scores.losses, scores.weight)
    values = {"loss": loss, **scores.metrics}
    writer.scalars(step, **values)
    writer.flush()
    logging.info("step %d: evaluated %d rows: %s", step, len(scores.losses), values)
    return loss


class Scores(NamedTuple):
    """The losses and metrics of a network on some rows.

    Attributes:
      losses: Loss per row, times the row's weight if the rows have weights; float32 [rows].
      weight: Sum of the weights, or the number of rows.
      metrics: Metric of the prediction head → its value.
    """

    losses: npt.NDArray[np.float32]
    weight: float
    metrics: dict[str, float]


# AutoGraph would convert the metrics of tf_keras: seconds of work without any effect.
@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def compute_scores(network: tf_keras.Model, head: PredictionHead, batches: Iterable[Batch]) -> Scores:
    """Compute the loss per row, and the metrics; see `evaluate` for the arguments."""
    losses, total = [], 0.0
    for metric in head.metrics:
        metric.reset_state()
    for features, label, *weight in batches:
        inputs, fold = folds.split(features)
        logits = folds.select_held_out(network(inputs, training=False), fold)
        losses.append(head.losses(label, logits, *weight).numpy())
        total += head.weight_of(label, *weight)
        for metric in head.metrics:
            metric.update_state(label, head.join_members(logits), *weight)
    metrics = {metric.name: float(metric.result()) for metric in head.metrics}
    return Scores(np.concatenate(losses), total, metrics)


def follow(
    folder: str,
    last_step: int,
    restore: Callable[[str], tf_keras.Model],
    on_checkpoint: Callable[[int, tf_keras.Model], object],
    is_over: Callable[[], bool],
) -> None:
    """Poll a folder for checkpoints of other tasks, until the last checkpoint.

    Args:
      folder: Folder of the checkpoints.
      last_step: Step of the last checkpoint.
      restore: Path of a checkpoint → the network with its weights.
      on_checkpoint: Called with the step and the network of every new checkpoint.
      is_over: Whether training has ended before `last_step`.
    """
    for step in _poll_new_steps(folder, last_step, is_over):
        try:
            network = restore(checkpoint.path(folder, step))
        except (tf.errors.NotFoundError, tf.errors.DataLossError) as error:
            logging.warning("checkpoint %d was deleted or is damaged: %s", step, error)
        else:
            on_checkpoint(step, network)


def _poll_new_steps(folder: str, last_step: int, is_over: Callable[[], bool]) -> Iterator[int]:
    seen = 0
    while seen < last_step:
        # Ask before listing, because the last checkpoint is written before training is over.
        ended = is_over()
        newest = next(iter(checkpoint.steps(folder)), 0)
        if newest > seen:
            yield newest
            seen = newest
        elif ended:
            return
        else:
            time.sleep(_POLL_SECONDS)
