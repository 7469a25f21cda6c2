"""The masked autoencoder: its error is the likelihood that NumPy computes, and no column is predicted from itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from scipy import special

from components.features.feature_spec import Dense, Ids
from components.models.autoencoder import IdErrors, NumberErrors
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from tests.support.data.tolerances import rounding

INPUTS = Inputs(
    {"a": Dense(), "a_missing": Dense(), "pixels": Dense(6), "x": Ids(5), "words": Ids(40, values=3), "y": Ids(3000)},
    {"a": ("a",), "a_missing": ("a",)},
)
ROWS = 32
RANDOM = np.random.default_rng(3)
NEAR = rounding(64)


def make_batch() -> dict[str, Any]:
    return {
        "a": RANDOM.normal(size=ROWS).astype(np.float32),
        "a_missing": RANDOM.integers(0, 2, ROWS).astype(np.float32),
        "pixels": RANDOM.normal(size=(ROWS, 6)).astype(np.float32),
        "x": RANDOM.integers(0, 5, ROWS),
        "words": RANDOM.integers(0, 40, (ROWS, 3)),
        "y": RANDOM.integers(0, 3000, ROWS),
    }


def make_network() -> tf_keras.Model:
    tf_keras.utils.set_random_seed(1)
    return build(ModelConfig(kind="autoencoder", hidden=(16,)), INPUTS, 1)


def test_no_column_is_predicted_from_itself() -> None:
    """The prediction of a feature changes with other columns, but not with any feature of its column."""
    network, batch = make_network(), make_batch()
    names = list(INPUTS.features)
    predicted = tf_keras.Model(network.inputs, [network.get_layer(f"{name}_predicted").output for name in names])
    before = predicted(batch)
    for changed in names:
        values = np.roll(batch[changed], 1, axis=0)
        after = predicted({**batch, changed: values})
        for name, first, second in zip(names, before, after, strict=True):
            is_same_column = {changed, name} <= {"a", "a_missing"} or changed == name
            assert np.array_equal(first, second) == is_same_column, (changed, name)


def test_error_is_the_mean_of_the_errors_of_the_features() -> None:
    network, batch = make_network(), make_batch()
    errors = tf_keras.Model(network.inputs, [network.get_layer(f"{name}_error").output for name in INPUTS.features])
    logits = network(batch)
    assert (logits.shape, logits.dtype) == ((ROWS, 1), tf.float32)
    NEAR.assert_close(logits, np.mean(errors(batch), axis=0))


def test_errors_of_numbers_are_those_of_normal_distributions() -> None:
    numbers, predicted = RANDOM.normal(size=(ROWS, 2)) * 20, RANDOM.normal(size=(ROWS, 4)) * 3
    mean, deviation = predicted[:, :2], np.exp(3 * np.tanh(predicted[:, 2:] / 3))
    expected = np.mean(np.log(deviation) + ((np.clip(numbers, -10, 10) - mean) / deviation) ** 2 / 2, axis=1)
    received = NumberErrors()([tf.constant(numbers, tf.float32), tf.constant(predicted, tf.float32)])
    np.testing.assert_allclose(received[:, 0], expected, rtol=1e-4, atol=1e-4)
    single = NumberErrors()([tf.constant(numbers[:, 0], tf.float32), tf.constant(predicted[:, [0, 2]], tf.float32)])
    expected = np.log(deviation[:, 0]) + ((np.clip(numbers[:, 0], -10, 10) - mean[:, 0]) / deviation[:, 0]) ** 2 / 2
    np.testing.assert_allclose(single[:, 0], expected, rtol=1e-4, atol=1e-4)


def test_errors_of_ids_are_crossentropies() -> None:
    logits = RANDOM.normal(size=(3, 4))
    losses = -special.log_softmax(logits, axis=1)
    tensor = tf.constant(logits, tf.float32)
    # IDs beyond the number of classes are predicted by their remainders.
    NEAR.assert_close(IdErrors()([tf.constant([2, 7, 0], tf.int64), tensor])[:, 0], losses[[0, 1, 2], [2, 3, 0]])
    several = IdErrors()([tf.constant([[1, 2], [3, 0], [0, 0]], tf.int64), tensor])[:, 0]
    NEAR.assert_close(several, [losses[0, 1:3].mean(), losses[1, 3], 0])


@pytest.mark.extended
def test_rows_against_the_dependence_of_columns_have_larger_errors() -> None:
    """In training rows both numbers are equal up to noise, and the ID is their sign."""
    inputs = Inputs({"a": Dense(), "b": Dense(), "sign": Ids(2)})
    tf_keras.utils.set_random_seed(1)
    network = build(ModelConfig(kind="autoencoder", hidden=(16,), embedding=4), inputs, 1)
    a = RANDOM.normal(size=512).astype(np.float32)
    batch = {"a": a, "b": a + RANDOM.normal(size=512).astype(np.float32) / 10, "sign": (a > 0).astype(np.int64)}
    optimizer = tf_keras.optimizers.Adam(0.02)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(network(batch, training=True))
        variables = network.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for _ in range(150):
        step()
    ordinary = network(batch).numpy()[:, 0]
    for changed in ({"b": -batch["b"]}, {"sign": 1 - batch["sign"]}):
        unusual = network({**batch, **changed}).numpy()[:, 0]
        assert np.mean(unusual > np.quantile(ordinary, 0.95)) > 0.7


def test_a_single_group_of_columns_is_predicted_from_nothing() -> None:
    network = build(ModelConfig(kind="autoencoder", hidden=(4,)), Inputs({"a": Dense()}), 1)
    predicted = tf_keras.Model(network.inputs, network.get_layer("a_predicted").output)
    rows = predicted({"a": tf.constant([1.0, 2.0, -7.0])}).numpy()
    assert np.ptp(rows, axis=0).max() == 0


def test_other_numbers_of_outputs_are_rejected() -> None:
    with pytest.raises(ValueError, match="autoencoder: expected 1 output, received 2"):
        build(ModelConfig(kind="autoencoder"), INPUTS, 2)
