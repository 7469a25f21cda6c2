"""The gradients of one batch of training rows at a checkpoint, for TensorBoard's histograms."""

from __future__ import annotations

import dataclasses
import functools

import tensorflow as tf
import tf_keras

from components.models.stages import Gradient
from components.trainer.gradients import create_gradient_function
from components.trainer.input_columns import InputShard
from components.trainer.input_pipeline import Batch, InputPipeline
from components.trainer.prediction_head import PredictionHead

_SHUFFLED = 8
"""Number of batches in the shuffle buffer from which the batch is taken."""


class GradientProbe:
    """Computes gradients of one batch, which is the same at every checkpoint, so that their changes can be compared.

    A separate graph computes them, on a copy of the network with the weights of a checkpoint, so the steps stay the
    same under every strategy. Layers that update variables in training, such as BatchNormalization, update the copy.

    Args:
      network: The copy, under no strategy.
      head: The loss.
      input_pipeline: The training examples.
      parts: Number of parts of the batch whose gradients are computed one after the other and added up.
    """

    def __init__(
        self, network: tf_keras.Model, head: PredictionHead, input_pipeline: InputPipeline, parts: int = 1
    ) -> None:
        self._network, self._input_pipeline = network, input_pipeline
        # The optimizer is not used, because only a LossScaleOptimizer changes gradients.
        compute = create_gradient_function(network, tf_keras.optimizers.SGD(), head, 1, parts)
        self._compute = tf.function(tf.autograph.experimental.do_not_convert(compute), autograph=False)

    def compute(self) -> dict[str, tf.Tensor]:
        """Return name of a weight → gradient of the mean loss; of a table of IDs, only the rows in the batch.

        Weights that the loss ignores are left out.
        """
        with tf.device("CPU:0"):
            _, gradients = self._compute(self._batch)
            return {
                variable.name: _merge_rows(gradient)
                for variable, gradient in zip(self._network.trainable_variables, gradients, strict=True)
                if gradient is not None
            }

    @functools.cached_property
    def _batch(self) -> Batch:
        """A random batch, read from the files, because the steps may keep all examples in memory already."""
        pipeline = self._input_pipeline
        changes = {"cache": "none", "shuffle_buffer": _SHUFFLED * pipeline.batch_rows}
        config = pipeline.config.model_copy(update=changes)
        with tf.device("CPU:0"):
            batch: Batch = next(iter(dataclasses.replace(pipeline, config=config).dataset(InputShard())))
        return batch


def _merge_rows(gradient: Gradient) -> tf.Tensor:
    """Return a dense gradient, or the rows of a table that are not 0; each row once."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    return tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
