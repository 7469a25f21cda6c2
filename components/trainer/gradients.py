"""The loss of a batch and its gradients, which may be added up over parts of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf
import tf_keras

from components.models import folds
from components.models.images import frozen_variables
from components.models.stages import Gradient, Stage, compute_gradients
from components.trainer.input_pipeline import Batch
from components.trainer.prediction_head import PredictionHead

LossAndGradients: TypeAlias = Callable[[Batch], tuple[tf.Tensor, list[Gradient]]]
"""A batch → a part of the mean loss, and the gradient of each trainable variable, None if the loss ignores it."""


def create_gradient_function(
    network: tf_keras.Model,
    optimizer: tf_keras.optimizers.Optimizer,
    head: PredictionHead,
    replicas: int,
    parts: int = 1,
    frozen_steps: int = 0,
    stages: Sequence[Stage] = (),
    micro_batches: int = 1,
) -> LossAndGradients:
    """Return the function that computes a replica's part of the mean loss, and its gradients.

    Args:
      network: The network, from transformed features to logits.
      optimizer: The optimizer, which scales the loss if it is a LossScaleOptimizer.
      head: The loss.
      replicas: Number of replicas whose gradients are added up.
      parts: Number of parts of a batch whose gradients are computed one after the other and added up.
      frozen_steps: Number of first steps in which the variables of `frozen_variables` do not change.
      stages: The network, divided into stages on several devices; empty if it is not divided.
      micro_batches: Number of parts of a batch that travel through the stages at the same time.
    """
    frozen = frozen_variables(network) if frozen_steps else frozenset()
    scales_loss = isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer)
    variables = network.trainable_variables

    def compute_part(batch: Batch, share: float | tf.Tensor) -> tuple[tf.Tensor, list[Gradient]]:
        features, label, *weight = batch
        inputs, fold = folds.split(features)
        if stages:

            def compute_loss(output: tf.Tensor) -> tf.Tensor:
                return tf.reduce_mean(head.losses(label, output, *weight))

            return compute_gradients(network, stages, inputs, compute_loss, micro_batches, share / replicas)
        with tf.GradientTape() as tape:
            losses = head.losses(label, folds.select_trained(network(inputs, training=True), fold), *weight)
            loss = (tf.reduce_mean(losses) + sum(network.losses)) * share / replicas
            differentiated = optimizer.get_scaled_loss(loss) if scales_loss else loss
        return loss, tape.gradient(differentiated, variables)

    def compute(batch: Batch) -> tuple[tf.Tensor, list[Gradient]]:
        loss, gradients = compute_part(batch, 1.0) if parts == 1 else _add_parts(batch, compute_part, parts)
        if scales_loss:
            gradients = optimizer.get_unscaled_gradients(gradients)
        if frozen:
            # An optimizer does not change a variable as long as all its gradients are 0.
            thawed = tf.cast(optimizer.iterations >= frozen_steps, tf.float32)
            gradients = [
                gradient * tf.cast(thawed, gradient.dtype)
                if gradient is not None and id(variable) in frozen
                else gradient
                for gradient, variable in zip(gradients, variables, strict=True)
            ]
        return loss, gradients

    return compute


def _add_parts(
    batch: Batch, compute_part: Callable[[Batch, tf.Tensor], tuple[tf.Tensor, list[Gradient]]], parts: int
) -> tuple[tf.Tensor, list[Gradient]]:
    """Add up the losses and gradients of parts of a batch, in a loop that computes one part at a time.

    Args:
      batch: The batch.
      compute_part: (rows of the batch, their share of all rows) → loss and gradients.
      parts: Number of parts; a batch with fewer rows has a part per row.
    """
    rows = tf.shape(batch[1])[0]
    count = tf.minimum(parts, rows)

    def compute(number: int | tf.Tensor) -> tuple[tf.Tensor, list[Gradient]]:
        begin, end = number * rows // count, (number + 1) * rows // count
        part = tf.nest.map_structure(lambda values: values[begin:end], batch)
        return compute_part(part, tf.cast(end - begin, tf.float32) / tf.cast(rows, tf.float32))

    loss, gradients = compute(0)
    # The rows of sparse gradients are joined, so their number grows.
    joins = [isinstance(gradient, tf.IndexedSlices) for gradient in gradients for _ in _list_tensors(gradient)]
    first = [tensor for gradient in gradients for tensor in _list_tensors(gradient)]
    shapes = [
        tf.TensorShape([None, *tensor.shape[1:]]) if is_joined else tensor.shape
        for tensor, is_joined in zip(first, joins, strict=True)
    ]

    def add(number: tf.Tensor, loss: tf.Tensor, *sums: tf.Tensor) -> list[tf.Tensor]:
        part_loss, part = compute(number)
        terms = [tensor for gradient in part for tensor in _list_tensors(gradient)]
        added = (
            tf.concat([total, term], axis=0) if is_joined else total + term
            for total, term, is_joined in zip(sums, terms, joins, strict=True)
        )
        return [number + 1, loss + part_loss, *added]

    _, loss, *sums = tf.while_loop(
        lambda number, *_: number < count,
        add,
        [tf.constant(1), loss, *first],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([]), *shapes],
        parallel_iterations=1,
    )
    remaining = iter(sums)
    total: list[Gradient] = []
    for gradient in gradients:
        if isinstance(gradient, tf.IndexedSlices):
            total.append(tf.IndexedSlices(next(remaining), next(remaining), gradient.dense_shape))
        else:
            total.append(None if gradient is None else next(remaining))
    return loss, total


def _list_tensors(gradient: Gradient) -> list[tf.Tensor]:
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.values, gradient.indices]
    return [] if gradient is None else [gradient]
