"""Tests of the divergence, which is the distillation loss of a student."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from components.edge.distillation import divergence
from tests.support.data.tolerances import rounding

NEAR = rounding(16)
"""Tolerance of a sum of two or three products of a probability and a logarithm near 1."""


def test_divergence_is_computed_from_softened_probabilities() -> None:
    teacher = np.array([[0.7, 0.2, 0.1]], np.float32)
    logits = np.array([[1.0, 2.0, 3.0]], np.float32)
    p, q = (
        np.exp(scaled_logits) / np.exp(scaled_logits).sum() for scaled_logits in (np.log(teacher[0]) / 4, logits[0] / 4)
    )
    expected = np.sum(p * np.log(p / q))
    assert divergence(tf.constant(teacher), tf.constant(logits), 4.0).numpy() == NEAR.approx([expected])


def test_binary_label_is_treated_as_two_classes() -> None:
    probability, logit = tf.constant([[0.9], [0.0]]), tf.constant([[0.0], [1.0]])
    probabilities = tf.concat([1 - probability, probability], 1)
    expected = divergence(probabilities, tf.concat([tf.zeros_like(logit), logit], 1), 2.0)
    NEAR.assert_close(divergence(probability, logit, 2.0), expected)
    assert np.isfinite(expected).all()


def test_divergence_of_equal_predictions_is_0() -> None:
    logits = tf.constant([[0.3, -1.0, 2.0]])
    assert divergence(tf.nn.softmax(logits), logits, 4.0).numpy() == NEAR.approx([0])
