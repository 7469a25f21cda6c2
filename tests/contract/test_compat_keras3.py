"""The private parts of Keras 3 in components.compat.keras3 still exist in the installed version."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

from components.compat.keras3 import list_layers, restart_names, seeds_without_strategy

pytestmark = pytest.mark.both_lines


def test_names_start_again() -> None:
    restart_names()
    assert [keras.layers.Dense(1).name for _ in range(2)] == ["dense", "dense_1"]
    restart_names()
    assert keras.layers.Dense(1).name == "dense"


class _Pair(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.others = keras.layers.Dense(1), [keras.layers.LayerNormalization()]

    def call(self, tensor: Any) -> Any:
        return self.others[0](self.first(tensor))


def test_layers_inside_a_layer_are_listed() -> None:
    tensor = keras.Input((1,))
    layers = list_layers(keras.Model(tensor, _Pair()(tensor)))
    assert {type(layer) for layer in layers} >= {_Pair, keras.layers.Dense, keras.layers.LayerNormalization}


def test_seeds_are_outside_of_the_strategy_and_other_variables_inside() -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope(), seeds_without_strategy():
        seed = tf.Variable(tf.constant([1, 0], tf.uint32), trainable=False)
        # Keras names the dtype of every variable.
        from_function = tf.Variable(lambda: tf.constant([2, 0], tf.uint32), trainable=False, dtype="uint32")
        weight = tf.Variable([1.0])
    assert [hasattr(variable, "values") for variable in (seed, from_function, weight)] == [False, False, True]
    assert (seed.numpy().tolist(), from_function.numpy().tolist()) == ([1, 0], [2, 0])
    assert not seed.trainable
