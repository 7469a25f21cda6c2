"""The losses that `model.loss` selects: the meaning of a network's logits, and the function that training minimizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from components.base.errors import InputError
from components.features.expression import Label
from components.models.config import ModelConfig

RowLoss: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(label [n], logits [n, outputs]) → the loss of each example, float32 [n]."""


class LabelScale(NamedTuple):
    """The statistics of a regression label in the training split.

    Attributes:
      rows: Number of rows.
      mean: Mean of the label.
      deviation: Standard deviation; not 0.
      negative: Number of rows with a negative label.
    """

    rows: int
    mean: float
    deviation: float
    negative: int


class RegressionLoss(NamedTuple):
    """A loss of a regression.

    Attributes:
      scale: (shift, unit): the loss compares the logits with (label - shift) / unit.
      outputs: Number of logits.
      loss: Loss of the scaled label.
      join: Logits [batch, members, outputs] of an ensemble → the logits of its mean prediction.
      outputs_by_name: Logits → the outputs of `serving_default`.
    """

    scale: tuple[float, float]
    outputs: int
    loss: RowLoss
    join: Callable[[tf.Tensor], tf.Tensor]
    outputs_by_name: Callable[[tf.Tensor], dict[str, tf.Tensor]]


def regression_loss(config: ModelConfig, label: Label, scale: LabelScale) -> RegressionLoss:
    """Create the configured loss.

    Args:
      config: The loss and its parameters.
      label: The label, for error messages.
      scale: Statistics of the label.

    Raises:
      InputError: If the loss requires a non-negative label, and the label is negative in some rows or 0 in all.
    """
    if config.loss in ("poisson", "tweedie"):
        _check_not_negative(config, label, scale)
        return _create_deviance_loss(1.0 if config.loss == "poisson" else config.tweedie_power, scale.mean)
    mean, deviation = scale.mean, scale.deviation
    if config.loss == "quantile":
        return _create_quantile_loss(config.quantiles, mean, deviation)
    delta = (config.huber_delta or deviation) / deviation
    return RegressionLoss(
        scale=(mean, deviation),
        outputs=1,
        loss=huber(delta) if config.loss == "huber" else squared_error,
        join=_mean,
        outputs_by_name=lambda logits: {"prediction": logits * deviation + mean},
    )


def _check_not_negative(config: ModelConfig, label: Label, scale: LabelScale) -> None:
    if scale.negative:
        raise InputError(
            f"{label}: {config.loss} expected a non-negative label, received {label.text!r}, which is negative in "
            f"{scale.negative:,} of {scale.rows:,} training rows",
            "set model.loss to huber or quantile, or remove these rows",
        )
    if not scale.mean:
        raise InputError(
            f"{label}: {label.text!r} is constant: all {scale.rows:,} training rows hold 0",
            "choose a label that differs between rows",
        )


def squared_error(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Compute the squared error per example."""
    return tf.square(label - logits[:, 0])


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


def focal(crossentropy: RowLoss, gamma: float) -> RowLoss:
    """Return the crossentropy times (1 - probability of the label) ** gamma, which reduces the loss of easy rows.

    Source: T.-Y. Lin, P. Goyal, R. Girshick, K. He and P. Dollár, Focal loss for dense object detection, ICCV 2017.
    """

    def loss(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        losses = crossentropy(label, logits)
        # expm1 keeps the digits near 0. The lower bound avoids the infinite gradient of a root at 0.
        return losses * tf.maximum(-tf.math.expm1(-losses), _LEAST) ** gamma

    return loss


_LEAST = 1e-7


def _mean(logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(logits, axis=1)


def _create_quantile_loss(quantiles: Sequence[float], mean: float, deviation: float) -> RegressionLoss:
    nearest = int(np.argmin(np.abs(np.array(quantiles) - 0.5)))

    def outputs_by_name(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        # Sorting moves estimated quantiles closer to the true quantiles (Chernozhukov, Fernández-Val and Galichon,
        # Quantile and probability curves without crossing, Econometrica 78, 2010).
        values = tf.sort(logits, axis=1) * deviation + mean
        return {"prediction": values[:, nearest : nearest + 1], "quantiles": values}

    return RegressionLoss((mean, deviation), len(quantiles), pinball(quantiles), _mean, outputs_by_name)


def _create_deviance_loss(power: float, mean: float) -> RegressionLoss:
    """Create a deviance loss of label / mean, so that a new network, whose logits are near 0, predicts the mean."""

    def join(logits: tf.Tensor) -> tf.Tensor:
        members = tf.cast(tf.shape(logits)[1], logits.dtype)
        return tf.reduce_logsumexp(logits, axis=1) - tf.math.log(members)

    return RegressionLoss((0.0, mean), 1, deviance(power), join, lambda logits: {"prediction": tf.exp(logits) * mean})
