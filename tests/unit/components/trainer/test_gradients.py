"""Tests of adding up gradients over parts of a batch: they equal the gradients of the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features.feature_spec import Dense, Ids
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.trainer.gradients import create_gradient_function
from components.trainer.optimizer import create_optimizer

pytestmark = pytest.mark.both_lines

INPUTS = Inputs({"a": Dense(), "words": Ids(40, values=3), "x": Ids(5)})
ROWS = 7


class WeightedCrossentropy:
    """A prediction head with the crossentropy of a binary label."""

    def losses(self, label: tf.Tensor, logits: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
        losses = tf.nn.sigmoid_cross_entropy_with_logits(label, logits)
        return tf.reduce_mean(losses, axis=1) * weight


def make_batch() -> Any:
    random = np.random.default_rng(0)
    features = {
        "a": tf.constant(random.normal(size=ROWS).astype(np.float32)),
        "words": tf.constant(random.integers(0, 40, (ROWS, 3))),
        "x": tf.constant(random.integers(0, 5, ROWS)),
    }
    label = tf.constant(random.integers(0, 2, (ROWS, 1)).astype(np.float32))
    return features, label, tf.constant(random.uniform(0.5, 2, ROWS).astype(np.float32))


def compute(network: tf_keras.Model, parts: int, scaled: bool = False) -> tuple[float, list[Any]]:
    """Return the loss and the dense gradients of the batch, computed by a graph in parts."""
    optimizer = create_optimizer(0.1)
    if scaled:
        optimizer = tf_keras.mixed_precision.LossScaleOptimizer(optimizer)
    function = create_gradient_function(network, optimizer, WeightedCrossentropy(), 2, parts)  # type: ignore[arg-type]
    loss, gradients = tf.function(function, autograph=False)(make_batch())
    dense = [None if gradient is None else tf.convert_to_tensor(gradient).numpy() for gradient in gradients]
    return float(loss), dense


# More parts than rows are as many parts as rows.
@pytest.mark.parametrize("parts", [2, 3, 10])
@pytest.mark.parametrize("scaled", [False, True])
def test_parts_of_a_batch_have_the_gradients_of_the_batch(parts: int, scaled: bool) -> None:
    tf_keras.utils.set_random_seed(1)
    network = build(ModelConfig(kind="wide_deep", hidden=(8,), normalisation="layer"), INPUTS, 1)
    loss, gradients = compute(network, 1)
    loss_of_parts, gradients_of_parts = compute(network, parts, scaled)
    np.testing.assert_allclose(loss_of_parts, loss, rtol=1e-6, atol=1e-7)
    assert len(gradients) == len(network.trainable_variables)
    assert max(np.abs(gradient).max() for gradient in gradients) > 0.01
    for whole, in_parts in zip(gradients, gradients_of_parts, strict=True):
        np.testing.assert_allclose(in_parts, whole, rtol=1e-5, atol=1e-7)


def test_gradient_of_a_linear_model_is_the_closed_form() -> None:
    tensor = tf_keras.layers.Input((2,), name="x")
    network = tf_keras.Model({"x": tensor}, tf_keras.layers.Dense(1)(tensor))
    random = np.random.default_rng(1)
    x, label = random.normal(size=(ROWS, 2)).astype(np.float32), random.integers(0, 2, (ROWS, 1)).astype(np.float32)
    weight = random.uniform(0.5, 2, ROWS).astype(np.float32)
    batch = {"x": tf.constant(x)}, tf.constant(label), tf.constant(weight)
    function = create_gradient_function(network, create_optimizer(0.1), WeightedCrossentropy(), 1, 3)  # type: ignore[arg-type]
    _, (kernel, bias) = function(batch)
    errors = weight * (1 / (1 + np.exp(-network(batch[0]).numpy())) - label)[:, 0]
    np.testing.assert_allclose(kernel[:, 0], x.T @ errors / ROWS, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(bias, [errors.mean()], rtol=1e-5, atol=1e-7)
