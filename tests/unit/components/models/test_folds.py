"""Tests of the networks of a cross-validation: a row trains all networks except one, which then evaluates the row."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features.feature_spec import Dense, Ids
from components.models import folds
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs

FEATURES = {"x": tf.constant([0.5, -1.0, 2.0]), "word": tf.constant([1, 0, 2], tf.int64)}


@pytest.mark.parametrize(("kind", "members"), [("mlp", 1), ("tabm", 3)])
def test_networks_differ_in_their_initial_weights(kind: str, members: int) -> None:
    config = ModelConfig(kind=kind, **({"members": members} if kind == "tabm" else {}))
    inputs = Inputs({"x": Dense(1), "word": Ids(3)})
    network = folds.cross_validated(lambda: build(config, inputs, 2), 4)
    logits = network(FEATURES)
    assert logits.shape == (3, 4, members, 2)
    assert len(np.unique(logits.numpy().round(6), axis=1)[0]) == 4
    parts = [build(config, inputs, 2).count_params() for _ in range(1)]
    assert network.count_params() == 4 * parts[0]


def test_row_trains_all_networks_except_the_network_of_its_fold() -> None:
    logits = tf.reshape(tf.range(2 * 3 * 2 * 1.0), [2, 3, 2, 1])
    fold = tf.constant([1, 0], tf.int64)
    np.testing.assert_array_equal(tf.sort(folds.select_trained(logits, fold)[..., 0]), [[0, 1, 4, 5], [8, 9, 10, 11]])
    np.testing.assert_array_equal(folds.select_held_out(logits, fold)[..., 0], [[2, 3], [6, 7]])


def test_row_does_not_change_the_network_that_evaluates_it() -> None:
    network = folds.cross_validated(lambda: _linear(), 3)
    fold = tf.constant([2, 2, 2], tf.int64)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(folds.select_trained(network({"x": FEATURES["x"]}), fold))
    gradients = tape.gradient(loss, network.trainable_variables, unconnected_gradients="zero")
    assert [bool(tf.reduce_any(gradient != 0)) for gradient in gradients] == [True, True, False]


def _linear() -> tf_keras.Model:
    x = tf_keras.layers.Input((), name="x")
    return tf_keras.Model({"x": x}, tf_keras.layers.Dense(1, use_bias=False)(x[:, tf.newaxis]))
