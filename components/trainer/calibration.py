"""Calibration: corrects a trained model's probabilities by the labels of rows that it was not trained on."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.special
import tensorflow as tf

from components.models.forest import Floats
from components.trainer.prediction_head import PredictionHead

Calibrate = Callable[[tf.Tensor], tf.Tensor]
"""Logits [batch, outputs] → calibrated logits, of the same shape."""

_DEVIATION = 0.25
"""Standard deviation of the prior of a temperature's logarithm."""
_LARGEST = math.log(20)
"""Bound of the logarithm of a temperature, in both directions."""


def fit_calibration(
    kind: Literal["temperature", "isotonic"],
    head: PredictionHead,
    logits: Floats,
    labels: npt.NDArray[Any],
    weight: Floats | None = None,
) -> Calibrate:
    """Calibrates a model; the logits of each of several labels by themselves.

    Args:
      kind: the method.
      head: the losses of the labels.
      logits: of rows that the model was not trained on, [rows, outputs].
      labels: [rows, labels].
      weight: of the rows, [rows]; None: all count the same.
    """
    if head.parts:
        columns = head.columns
        of_labels = [
            fit_calibration(kind, part, logits[:, own], labels[:, number : number + 1], weight)
            for number, (part, own) in enumerate(zip(head.parts, columns, strict=True))
        ]
        return lambda given: tf.concat(
            [calibrate(given[:, own]) for calibrate, own in zip(of_labels, columns, strict=True)], axis=1
        )
    label = labels[:, 0]
    return isotonic(logits, label, weight) if kind == "isotonic" else temperature(head, logits, label, weight)


def temperature(
    head: PredictionHead, logits: Floats, label: npt.NDArray[Any], weight: Floats | None = None
) -> Calibrate:
    """Divides the logits by the temperature with the lowest loss (Guo et al. 2017, On Calibration of Modern Neural
    Networks).

    The logarithm of the temperature has a normal prior, which some hundred rows outweigh: without it, a few rows would
    decide, and the temperature of a model that makes no error on them would be 0.

    Args:
      head: the task's loss.
      logits: of rows that the model was not trained on, [rows, outputs].
      label: their labels, [rows].
      weight: their weights, [rows]; None: all count the same.
    """

    def loss(logarithm: float) -> float:
        losses = head.losses(tf.constant(label), tf.constant(logits * np.float32(math.exp(-logarithm))), weight)
        return head.mean(losses, head.weight_of(label, weight))

    def with_prior(logarithm: float) -> float:
        return loss(logarithm) + (logarithm / _DEVIATION) ** 2 / 2 / len(label)

    best = scipy.optimize.minimize_scalar(with_prior, bounds=(-_LARGEST, _LARGEST), method="bounded").x
    value = math.exp(best)
    logging.info("temperature %.3f: loss %.5f instead of %.5f on the validation part", value, loss(best), loss(0))
    return lambda given: given / value


def isotonic(logits: Floats, label: npt.NDArray[Any], weight: Floats | None = None) -> Calibrate:
    """Replace the logits of a binary label by an increasing function of them (Zadrozny & Elkan 2002, Transforming
    Classifier Scores into Accurate Multiclass Probability Estimates), linear between the centers of its steps.

    Args:
      logits: as that of `temperature`, with one output.
      label: 0 or 1; [rows].
      weight: as that of `temperature`.
    """
    weights = np.ones(len(label)) if weight is None else weight.astype(np.float64)
    counted = weights > 0
    if not counted.any():
        return lambda given: given
    # Rows with the same logit get the same probability, so the regression sees each logit once, with its mean label.
    distinct, positions = np.unique(logits[counted, 0].astype(np.float64), return_inverse=True)
    totals = np.bincount(positions, weights[counted])
    shares = np.bincount(positions, weights[counted] * label[counted]) / totals
    fitted = scipy.optimize.isotonic_regression(shares, weights=totals)
    starts = fitted.blocks[:-1]
    centers = np.add.reduceat(distinct * totals, starts) / np.add.reduceat(totals, starts)
    # A step of rows with the same label does not prove that the next row has it: no probability is exactly 0 or 1.
    ends = 1 / (counted.sum() + 2)
    values = scipy.special.logit(np.clip(fitted.x[starts], ends, 1 - ends))
    logging.info("isotonic regression: %d steps on %d rows", len(centers), counted.sum())
    at, to = tf.constant(centers, tf.float32), tf.constant(values, tf.float32)
    if len(centers) == 1:
        return lambda given: tf.zeros_like(given) + to

    def calibrate(given: tf.Tensor) -> tf.Tensor:
        inside = tf.clip_by_value(given, at[0], at[-1])
        above = tf.clip_by_value(tf.searchsorted(at, tf.reshape(inside, [-1])), 1, len(centers) - 1)
        above = tf.reshape(above, tf.shape(given))
        left, right = tf.gather(at, above - 1), tf.gather(at, above)
        share = tf.math.divide_no_nan(inside - left, right - left)
        return tf.gather(to, above - 1) * (1 - share) + tf.gather(to, above) * share

    return calibrate
