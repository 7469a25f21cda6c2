"""The score of an anomaly model: the share of ordinary rows with a smaller reconstruction error."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from components.models.forest import Floats
from components.results.model_outputs import IS_ANOMALY, PREDICTION_KEY
from components.trainer.prediction_head import AnomalyHead

_LEVELS = 1001
"""Maximum number of quantiles that are stored."""


def fit_score(
    head: AnomalyHead, errors: Floats, weight: Floats | None = None
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the function from errors [batch, 1] to the outputs of a prediction.

    The score is linear between the quantiles of the given errors. It is (n - 1/2) / n for the largest of n errors, and
    approaches 1 beyond it, so that rows with larger errors still have larger scores.

    Args:
      head: The head, with the share of anomalies.
      errors: Errors of rows that the model was not trained on, [rows, 1].
      weight: Weights of the rows, [rows]; if None, all rows have the same weight.
    """
    values = errors[:, 0].astype(np.float64)
    weights = np.ones(len(values)) if weight is None else weight.astype(np.float64)
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    shares = (np.cumsum(weights) - weights / 2) / weights.sum()
    levels = np.linspace(shares[0], shares[-1], min(_LEVELS, len(values)))
    nodes, first = np.unique(np.interp(levels, shares, values).astype(np.float32)[::-1], return_index=True)
    # Of several levels with the same error, keep the highest.
    levels = levels[::-1][first].astype(np.float32)
    threshold = np.float32(1 - head.contamination)
    at = float(np.interp(threshold, levels, nodes))
    logging.info(
        "score: quantiles of %d errors from %.4g to %.4g; anomalies from %.4g", len(values), *values[[0, -1]], at
    )
    scale = max(float(nodes[-1] - nodes[len(nodes) // 2]), 1e-6)

    def outputs(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        score = _interpolate(logits, nodes, levels, scale)
        is_anomaly = tf.cast(score >= threshold, tf.int64)
        return {PREDICTION_KEY["anomaly"]: score, IS_ANOMALY: is_anomaly, **head.outputs_by_name(logits)}

    return outputs


def _interpolate(errors: tf.Tensor, nodes: Floats, levels: Floats, scale: float) -> tf.Tensor:
    """Return the scores of errors, of the same shape: levels at the nodes, towards 0 and 1 beyond them."""
    beyond = tf.nn.relu(errors - nodes[-1]) / scale
    below = tf.nn.relu(nodes[0] - errors) / scale
    ends = levels[0] / (1 + below) + (1 - levels[-1]) * beyond / (1 + beyond)
    if len(nodes) == 1:
        return ends
    at, to = tf.constant(nodes), tf.constant(levels)
    inside = tf.clip_by_value(errors, nodes[0], nodes[-1])
    above = tf.clip_by_value(tf.searchsorted(at, tf.reshape(inside, [-1])), 1, len(nodes) - 1)
    above = tf.reshape(above, tf.shape(errors))
    low, high = tf.gather(at, above - 1), tf.gather(at, above)
    share = (inside - low) / (high - low)
    return ends + tf.gather(to, above - 1) * (1 - share) + tf.gather(to, above) * share - levels[0]
