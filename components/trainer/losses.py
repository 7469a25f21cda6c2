"""The losses that `model.loss` chooses: what a network's logits mean, and what the training minimizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from components.base.errors import InputError
from components.features.plan import DeclaredLabel
from components.models.config import ModelConfig

RowLoss: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(label [n], logits [n, outputs]) → the loss of each example, float32 [n]."""


class LabelScale(NamedTuple):
    """The statistics of a regression label in the training split.

    Attributes:
      rows: number of rows.
      mean: of the label.
      deviation: standard deviation; not 0.
      negative: number of rows with a negative label.
    """

    rows: int
    mean: float
    deviation: float
    negative: int


class RegressionLoss(NamedTuple):
    """A loss of a regression.

    Attributes:
      scale: what the label is reduced by, and then divided by, before the loss compares it with the logits.
      outputs: number of logits.
      loss: of the scaled label.
      join: logits [batch, members, outputs] of an ensemble → those of its mean prediction.
      outputs_by_name: logits → the outputs of `serving_default`.
    """

    scale: tuple[float, float]
    outputs: int
    loss: RowLoss
    join: Callable[[tf.Tensor], tf.Tensor]
    outputs_by_name: Callable[[tf.Tensor], dict[str, tf.Tensor]]


def regression_loss(config: ModelConfig, label: DeclaredLabel, scale: LabelScale) -> RegressionLoss:
    """Make the configured loss.

    Args:
      config: the loss and its parameters.
      label: for error messages.
      scale: its statistics.

    Raises:
      InputError: the loss is that of labels from 0 on, and the label is negative in some rows, or 0 in all.
    """
    if config.loss in ("poisson", "tweedie"):
        _check_not_negative(config, label, scale)
        return _of_deviance(1.0 if config.loss == "poisson" else config.tweedie_power, scale.mean)
    mean, deviation = scale.mean, scale.deviation
    if config.loss == "quantile":
        return _of_quantiles(config.quantiles, mean, deviation)
    delta = (config.huber_delta or deviation) / deviation
    return RegressionLoss(
        scale=(mean, deviation),
        outputs=1,
        loss=huber(delta) if config.loss == "huber" else squared,
        join=_mean,
        outputs_by_name=lambda logits: {"prediction": logits * deviation + mean},
    )


def _check_not_negative(config: ModelConfig, label: DeclaredLabel, scale: LabelScale) -> None:
    if scale.negative:
        raise InputError(
            f"{label.key}: {config.loss} expected a label from 0 on, received {label.text!r}, which is negative in "
            f"{scale.negative:,} of {scale.rows:,} training rows",
            "set model.loss to huber or quantile, or remove these rows",
        )
    if not scale.mean:
        raise InputError(
            f"{label.key}: {label.text!r} is constant: all {scale.rows:,} training rows hold 0",
            "choose a label that differs between rows",
        )


def squared(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the squared error."""
    return tf.square(label - logits[:, 0])


def huber(delta: float) -> RowLoss:
    """Return the squared error of errors up to delta, and beyond it the line that continues it.

    Source: P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35, 1964.
    """

    def loss(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        error = tf.abs(label - logits[:, 0])
        near = tf.minimum(error, delta)
        return near * (2 * error - near)

    return loss


def pinball(quantiles: Sequence[float]) -> RowLoss:
    """Return the mean over quantiles of max(quantile * error, (quantile - 1) * error), with a logit for each quantile.

    Source: R. Koenker and G. Bassett, Regression quantiles, Econometrica 46, 1978.
    """

    def loss(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        error = label[:, tf.newaxis] - logits
        levels = tf.constant(quantiles, error.dtype)
        return tf.reduce_mean(tf.maximum(levels * error, (levels - 1) * error), axis=1)

    return loss


def deviance(power: float) -> RowLoss:
    """Half the unit deviance of a label whose mean is exp(logit); it is 0 where both are equal.

    Source: B. Jørgensen, Exponential dispersion models, Journal of the Royal Statistical Society B 49, 1987.

    Args:
      power: the variance is proportional to this power of the mean; 1, as of Poisson's distribution, or between 1
        and 2.
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


def focal(crossentropy: RowLoss, gamma: float) -> RowLoss:
    """Return the crossentropy times (1 - probability of the label) ** gamma: rows that are predicted well count less.

    Source: T.-Y. Lin, P. Goyal, R. Girshick, K. He and P. Dollár, Focal loss for dense object detection, ICCV 2017.
    """

    def loss(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        losses = crossentropy(label, logits)
        # 1 - exp(-losses), without the loss of digits near 0, where the gradient of a root is infinite.
        return losses * tf.maximum(-tf.math.expm1(-losses), _LEAST) ** gamma

    return loss


_LEAST = 1e-7


def _mean(logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(logits, axis=1)


def _of_quantiles(quantiles: Sequence[float], mean: float, deviation: float) -> RegressionLoss:
    nearest = int(np.argmin(np.abs(np.array(quantiles) - 0.5)))

    def outputs_by_name(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        # Sorted, estimated quantiles are nearer to the true ones (Chernozhukov, Fernández-Val and Galichon, Quantile
        # and probability curves without crossing, Econometrica 78, 2010).
        values = tf.sort(logits, axis=1) * deviation + mean
        return {"prediction": values[:, nearest : nearest + 1], "quantiles": values}

    return RegressionLoss((mean, deviation), len(quantiles), pinball(quantiles), _mean, outputs_by_name)


def _of_deviance(power: float, mean: float) -> RegressionLoss:
    """Return the label is divided by its mean, so that a new network, whose logits are near 0, predicts the mean."""

    def join(logits: tf.Tensor) -> tf.Tensor:
        members = tf.cast(tf.shape(logits)[1], logits.dtype)
        return tf.reduce_logsumexp(logits, axis=1) - tf.math.log(members)

    return RegressionLoss((0.0, mean), 1, deviance(power), join, lambda logits: {"prediction": tf.exp(logits) * mean})
