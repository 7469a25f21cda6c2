"""The losses per example: of the tasks, and those that `model.loss` selects."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

RowLoss: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(label [n], logits [n, outputs]) → the loss of each example, float32 [n]."""


def binary_crossentropy(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Compute the crossentropy per example, [n]."""
    # If label and logits differ by an axis, the loss of tf_keras broadcasts and averages over all examples.
    return tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(label, logits.dtype), logits[:, 0])


def crossentropy(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Compute the crossentropy per example, [n]; a label that is not in the training split has probability 1e-7."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(label, 0), logits)
    return tf.where(label < 0, -math.log(1e-7), losses)


def squared_error(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Compute the squared error per example."""
    return tf.square(label - logits[:, 0])


def reconstruction_error(_label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the logit, which is the error per example."""
    return logits[:, 0]


def huber(delta: float) -> RowLoss:
    """Return a loss that is quadratic for errors up to delta, and linear beyond.

    Source: P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35, 1964.
    """

    def loss(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        error = tf.abs(label - logits[:, 0])
        near = tf.minimum(error, delta)
        return near * (2 * error - near)

    return loss


def pinball(quantiles: Sequence[float]) -> RowLoss:
    """Return the mean of max(quantile * error, (quantile - 1) * error) over quantiles, with one logit per quantile.

    Source: R. Koenker and G. Bassett, Regression quantiles, Econometrica 46, 1978.
    """

    def loss(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        error = label[:, tf.newaxis] - logits
        levels = tf.constant(quantiles, error.dtype)
        return tf.reduce_mean(tf.maximum(levels * error, (levels - 1) * error), axis=1)

    return loss


def deviance(power: float) -> RowLoss:
    """Return half the unit deviance of a label whose mean is exp(logit); it is 0 where both are equal.

    Source: B. Jørgensen, Exponential dispersion models, Journal of the Royal Statistical Society B 49, 1987.

    Args:
      power: The variance is proportional to this power of the mean: 1 (Poisson distribution), or between 1 and 2.
    """

    def loss(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        log_mean = logits[:, 0]
        if power == 1:
            return tf.exp(log_mean) - label * log_mean + tf.math.xlogy(label, label) - label
        return (
            tf.exp((2 - power) * log_mean) / (2 - power)
            - label * tf.exp((1 - power) * log_mean) / (1 - power)
            + label ** (2 - power) / ((1 - power) * (2 - power))
        )

    return loss


def focal(row_loss: RowLoss, gamma: float) -> RowLoss:
    """Return the crossentropy times (1 - probability of the label) ** gamma, which reduces the loss of easy rows.

    Source: T.-Y. Lin, P. Goyal, R. Girshick, K. He and P. Dollár, Focal loss for dense object detection, ICCV 2017.
    """

    def loss(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        losses = row_loss(label, logits)
        # expm1 keeps the digits near 0. The lower bound avoids the infinite gradient of a root at 0.
        return losses * tf.maximum(-tf.math.expm1(-losses), _LEAST) ** gamma

    return loss


def listwise(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Compute the crossentropy between the labels of a list and the softmax of its logits, as a share per row.

    The loss of a list is the mean of -log softmax(logits) over its rows with label 1. It is 0 for a list with a single
    row, or without a label 1.

    Sources: Z. Cao, T. Qin, T.-Y. Liu, M.-F. Tsai and H. Li, Learning to rank: from pairwise approach to listwise
    approach, ICML 2007; S. Bruch, X. Wang, M. Bendersky and M. Najork, An analysis of the softmax cross entropy loss
    for learning-to-rank with binary relevance, ICTIR 2019.

    Args:
      label: 0 or 1, or -1 for padding; [lists, rows].
      logits: Logits of the rows, for several members of an ensemble; [lists, rows, members].

    Returns:
      The shares of the rows, whose sum is the loss of the list, as the mean over the members; [lists, rows].
    """
    is_row = (label >= 0)[:, :, tf.newaxis]
    logarithms = tf.nn.log_softmax(tf.where(is_row, logits, logits.dtype.min / 2), axis=1)
    logarithm = tf.reduce_mean(tf.where(is_row, logarithms, 0.0), axis=2)
    relevance = tf.cast(tf.maximum(label, 0), logits.dtype)
    return tf.math.divide_no_nan(-relevance * logarithm, tf.reduce_sum(relevance, axis=1, keepdims=True))


_LEAST = 1e-7
