"""Calibration: correct a trained model's probabilities by the labels of rows that it was not trained on."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.special
import tensorflow as tf

from components.models.forest import Floats
from components.trainer.prediction_head import (
    BinaryHead,
    CompositeHead,
    MultilabelHead,
    PredictionHead,
    SurvivalHead,
)

Calibrate = Callable[[tf.Tensor], tf.Tensor]
"""Logits [batch, outputs] → calibrated logits, of the same shape."""

_DEVIATION = 0.25
"""Standard deviation of the normal prior on the logarithm of a temperature."""
_LARGEST = math.log(20)
"""Bound on the absolute logarithm of a temperature."""


def fit_calibration(
    kind: Literal["temperature", "isotonic"],
    head: PredictionHead,
    logits: Floats,
    labels: npt.NDArray[Any],
    weight: Floats | None = None,
) -> Calibrate:
    """Fit the calibration of a model; several labels, and the classes of a multilabel task, are calibrated
    independently.

    Args:
      kind: The method.
      head: The losses of the labels.
      logits: Logits of rows that the model was not trained on, [rows, outputs].
      labels: Labels of the rows, [rows, labels].
      weight: Weights of the rows, [rows]; if None, all rows have the same weight.
    """
    parts: Sequence[PredictionHead] = ()
    if isinstance(head, CompositeHead):
        parts, columns = [*head.parts.values()], head.columns
    elif isinstance(head, MultilabelHead):
        # The classes are calibrated like binary labels.
        parts = [BinaryHead(mean_weight=head.mean_weight)] * head.outputs
        columns = [slice(number, number + 1) for number in range(head.outputs)]
    if parts:
        calibrations = [
            fit_calibration(kind, part, logits[:, columns[number]], labels[:, number : number + 1], weight)
            for number, part in enumerate(parts)
        ]
        return lambda logits: tf.concat(
            [calibrate(logits[:, part]) for calibrate, part in zip(calibrations, columns, strict=True)], axis=1
        )
    label = labels if isinstance(head, SurvivalHead) else labels[:, 0]
    return fit_isotonic(logits, label, weight) if kind == "isotonic" else fit_temperature(head, logits, label, weight)


def fit_temperature(
    head: PredictionHead, logits: Floats, label: npt.NDArray[Any], weight: Floats | None = None
) -> Calibrate:
    """Divide the logits by the temperature with the lowest loss.

    The logarithm of the temperature has a normal prior, which a few hundred rows outweigh. Without the prior, a few
    rows would decide, and a model that predicts all of them correctly would get temperature 0.

    Source: C. Guo et al., On calibration of modern neural networks, ICML 2017.

    Args:
      head: The task's loss.
      logits: Logits of rows that the model was not trained on, [rows, outputs].
      label: Labels of the rows, [rows], or [rows, 2] of a survival task.
      weight: Weights of the rows, [rows]; if None, all rows have the same weight.
    """

    def loss(logarithm: float) -> float:
        losses = head.losses(tf.constant(label), tf.constant(logits * np.float32(math.exp(-logarithm))), weight)
        return head.mean(losses, head.weight_of(label, weight))

    def with_prior(logarithm: float) -> float:
        return loss(logarithm) + (logarithm / _DEVIATION) ** 2 / 2 / len(label)

    best = scipy.optimize.minimize_scalar(with_prior, bounds=(-_LARGEST, _LARGEST), method="bounded").x
    value = math.exp(best)
    logging.info("temperature %.3f: loss %.5f instead of %.5f on the validation part", value, loss(best), loss(0))
    return lambda logits: logits / value


def fit_isotonic(logits: Floats, label: npt.NDArray[Any], weight: Floats | None = None) -> Calibrate:
    """Replace the logits of a binary label by an increasing function, linear between the centers of its steps.

    Source: B. Zadrozny and C. Elkan, Transforming classifier scores into accurate multiclass probability estimates,
    KDD 2002.

    Args:
      logits: Logits as for `fit_temperature`, with one output.
      label: 0 or 1; [rows].
      weight: Weights as for `fit_temperature`.
    """
    weights = np.ones(len(label)) if weight is None else weight.astype(np.float64)
    counted = weights > 0
    if not counted.any():
        return lambda logits: logits
    # Rows with the same logit get the same probability, so the regression sees each logit once, with its mean label.
    distinct, positions = np.unique(logits[counted, 0].astype(np.float64), return_inverse=True)
    totals = np.bincount(positions, weights[counted])
    shares = np.bincount(positions, weights[counted] * label[counted]) / totals
    fitted = scipy.optimize.isotonic_regression(shares, weights=totals)
    starts = fitted.blocks[:-1]
    centers = np.add.reduceat(distinct * totals, starts) / np.add.reduceat(totals, starts)
    # Isotonic regression must not output a probability of exactly 0 or 1, even where all rows have the same label.
    ends = 1 / (counted.sum() + 2)
    values = scipy.special.logit(np.clip(fitted.x[starts], ends, 1 - ends))
    logging.info("isotonic regression: %d steps on %d rows", len(centers), counted.sum())
    at, to = tf.constant(centers, tf.float32), tf.constant(values, tf.float32)
    if len(centers) == 1:
        return lambda logits: tf.zeros_like(logits) + to

    def calibrate(logits: tf.Tensor) -> tf.Tensor:
        inside = tf.clip_by_value(logits, at[0], at[-1])
        above = tf.clip_by_value(tf.searchsorted(at, tf.reshape(inside, [-1])), 1, len(centers) - 1)
        above = tf.reshape(above, tf.shape(logits))
        below, right = tf.gather(at, above - 1), tf.gather(at, above)
        share = tf.math.divide_no_nan(inside - below, right - below)
        return tf.gather(to, above - 1) * (1 - share) + tf.gather(to, above) * share

    return calibrate
