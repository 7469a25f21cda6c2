"""Tests of removing units and filters: which are chosen, and that a network without unused ones predicts the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
import tf_keras

from components.edge.channel_pruning import remove_channels
from components.edge.fine_tuning import NotMadeError
from tests.support.data.tolerances import float32_sum

pytestmark = pytest.mark.both_lines

layers = tf_keras.layers

IMAGES = np.random.default_rng(0).normal(size=(5, 8, 8, 3)).astype("f4")


def randomize(network: tf_keras.Model) -> None:
    """Give every weight a random value, so that biases, scales and moments matter; variances are positive."""
    random = np.random.default_rng(1)
    for layer in network.layers:
        weights = [random.normal(size=values.shape) for values in layer.get_weights()]
        if isinstance(layer, layers.BatchNormalization):
            weights[-1] = 0.5 + random.random(weights[-1].shape)
        layer.set_weights(weights)


def weaken(network: tf_keras.Model, channels: Sequence[int], *names: str) -> None:
    """Make the weights that compute these channels small, so that the channels are chosen."""
    for name in names:
        kernel, *bias = network.get_layer(name).get_weights()
        kernel[..., channels] *= 1e-3
        network.get_layer(name).set_weights([kernel, *bias])


def ignore(network: tf_keras.Model, channels: Sequence[int], *names: str) -> None:
    """Set the weights to 0 with which layers read these channels of their input."""
    for name in names:
        kernel, *bias = network.get_layer(name).get_weights()
        kernel[..., channels, :] = 0
        network.get_layer(name).set_weights([kernel, *bias])


def dense() -> tf_keras.Model:
    rows = layers.Input((8, 8, 3))
    below = layers.Dense(6, "sigmoid", name="first")(layers.Flatten()(rows))
    below = layers.Activation("tanh")(layers.Dense(5, name="second")(layers.Dropout(0.5)(below)))
    network = tf_keras.Model(rows, layers.Dense(2, name="logits")(below))
    randomize(network)
    weaken(network, [1, 4], "first")
    ignore(network, [1, 4], "second")
    weaken(network, [0], "second")
    ignore(network, [0], "logits")
    return network


def convolutions() -> tf_keras.Model:
    """Return a network with batch normalizations, a depthwise convolution and a flattened image."""
    image = layers.Input((8, 8, 3))
    below = layers.BatchNormalization(name="norm")(layers.Conv2D(6, 3, name="first")(image))
    below = layers.DepthwiseConv2D(3, name="depthwise")(layers.ReLU()(below))
    below = layers.Conv2D(8, 3, activation="relu", name="second")(layers.BatchNormalization(name="norm_b")(below))
    below = layers.Flatten(name="flat")(layers.MaxPooling2D(1)(below))
    network = tf_keras.Model(image, layers.Dense(2, name="logits")(below))
    randomize(network)
    weaken(network, [0, 5], "first")
    ignore(network, [0, 5], "second")
    weaken(network, [2, 3], "second")
    places = 2 * 2
    ignore(network, [8 * place + channel for place in range(places) for channel in (2, 3)], "logits")
    return network


def residual() -> tf_keras.Model:
    """Return a network with an addition and group normalizations with two channels per group."""
    image = layers.Input((8, 8, 3))
    first = layers.Conv2D(8, 3, padding="same", name="first")(image)
    below = layers.ReLU()(layers.GroupNormalization(4, name="norm")(first))
    below = layers.Conv2D(6, 3, padding="same", activation="relu", name="inner")(below)
    below = layers.Conv2D(8, 3, padding="same", name="second")(below)
    below = layers.GroupNormalization(4, name="norm_b")(layers.Add(name="sum")([first, below]))
    network = tf_keras.Model(image, layers.Dense(2, name="logits")(layers.GlobalAveragePooling2D()(below)))
    randomize(network)
    # A quarter of the groups, whose channels are joined by the addition, and of the inner channels.
    weaken(network, [2, 3], "first", "second")
    ignore(network, [2, 3], "inner", "logits")
    weaken(network, [5], "inner")
    ignore(network, [5], "second")
    return network


def branches() -> tf_keras.Model:
    image = layers.Input((8, 8, 3))
    pooled = layers.GlobalMaxPooling2D()(image)
    left = layers.Dense(4, "relu", name="left")(pooled)
    right = layers.Dense(6, "relu", name="right")(pooled)
    both = layers.Concatenate(name="both")([left, pooled, right])
    network = tf_keras.Model(image, layers.Dense(2, name="logits")(both))
    randomize(network)
    weaken(network, [3], "left")
    weaken(network, [0], "right")
    ignore(network, [3, 4 + 3 + 0], "logits")
    return network


@pytest.mark.parametrize(
    ("build", "share", "removed"),
    [
        pytest.param(dense, 0.34, {"first": (6, 4), "second": (5, 4)}, marks=pytest.mark.extended),
        pytest.param(convolutions, 0.34, {"first": (6, 4), "second": (8, 6)}, marks=pytest.mark.extended),
        (residual, 0.25, {"first": (8, 6), "inner": (6, 5), "second": (8, 6)}),
        (branches, 0.25, {"left": (4, 3), "right": (6, 5)}),
    ],
)
def test_network_without_channels_that_nothing_reads_predicts_the_same(
    build: Callable[[], tf_keras.Model], share: float, removed: dict[str, tuple[int, int]]
) -> None:
    network = build()
    expected = network(IMAGES).numpy()
    result = remove_channels(network, share)
    assert (result.removed, result.whole) == (removed, {"logits": "the output"})
    assert result.network.count_params() < network.count_params()
    largest = float(np.abs(expected).max())
    float32_sum(8 * 8 * 8, largest=max(largest, 10.0)).assert_close(result.network(IMAGES).numpy(), expected)
    # The network itself stays as it was.
    np.testing.assert_array_equal(network(IMAGES).numpy(), expected)


def test_filters_with_the_smallest_l1_norm_are_removed() -> None:
    image = layers.Input((8, 8, 3))
    below = layers.Conv2D(6, 3, name="first")(image)
    network = tf_keras.Model(image, layers.Conv2D(2, 3, name="last")(below))
    randomize(network)
    kernel, bias = network.get_layer("first").get_weights()
    kept = np.sort(np.argsort(np.abs(kernel).sum(axis=(0, 1, 2)))[3:])
    smaller = remove_channels(network, 0.5).network
    for received, expected in zip(
        (*smaller.get_layer("first").get_weights(), smaller.get_layer("last").get_weights()[0]),
        (kernel[..., kept], bias[kept], network.get_layer("last").get_weights()[0][:, :, kept]),
        strict=True,
    ):
        np.testing.assert_array_equal(received, expected)


def test_scale_of_a_batch_normalization_counts() -> None:
    image = layers.Input((8, 8, 3))
    below = layers.BatchNormalization(name="norm")(layers.Conv2D(4, 3, name="first")(image))
    network = tf_keras.Model(image, layers.Conv2D(2, 3, name="last")(below))
    network.get_layer("first").set_weights([np.ones((3, 3, 3, 4)), np.arange(4)])
    # After the division by the deviation, the factors are 1, 2, 0.5 and 4.
    network.get_layer("norm").set_weights(np.array([[2, -2, 0.5, 4], [0] * 4, [0] * 4, [4, 1, 1, 1]]))
    kept = remove_channels(network, 0.5).network.get_layer("first").get_weights()[1]
    np.testing.assert_array_equal(kept, [1, 3])


def network_with(part: Callable[[Any], Any], units: int = 4, **options: Any) -> tf_keras.Model:
    rows = layers.Input((4,))
    below = part(layers.Dense(units, name="first", **options)(rows))
    return tf_keras.Model(rows, layers.Dense(1, name="logits")(below))


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (lambda: network_with(layers.LayerNormalization(name="norm")), "read by norm"),
        (lambda: network_with(layers.Lambda(tf.nn.softmax, name="own")), "read by own"),
        (lambda: network_with(layers.Dropout(0.1), activation="softmax"), "its activation or groups"),
        (lambda: network_with(layers.ReLU(), units=1), "it has too few"),
        (lambda: network_with(lambda below: layers.Reshape((2, 2), name="pairs")(below)), "read by pairs"),
    ],
)
def test_channels_that_depend_on_each_other_are_kept(network: Callable[[], tf_keras.Model], reason: str) -> None:
    message = re.escape(f"can lose 0.5 of its units or filters, received first ({reason}), logits (the output)")
    with pytest.raises(NotMadeError, match=message):
        remove_channels(network(), 0.5)


def test_addition_to_the_features_keeps_the_channels() -> None:
    rows = layers.Input((4,))
    hidden = layers.Dense(6, "relu", name="hidden")(rows)
    below = layers.Add(name="sum")([rows, layers.Dense(4, name="first")(hidden)])
    network = tf_keras.Model(rows, layers.Dense(1, name="logits")(below))
    result = remove_channels(network, 0.5)
    assert (result.removed, result.whole) == ({"hidden": (6, 3)}, {"first": "read by sum", "logits": "the output"})


def test_layer_that_is_used_twice_is_kept() -> None:
    rows = layers.Input((4,))
    shared = layers.Dense(4, name="shared")
    below = layers.Dense(6, name="last")(shared(shared(rows)))
    network = tf_keras.Model(rows, layers.Dense(1, name="logits")(below))
    result = remove_channels(network, 0.5)
    assert result.removed == {"last": (6, 3)}
    assert result.whole == {"shared": "used several times", "logits": "the output"}


def test_network_inside_the_network_is_cut() -> None:
    inner_rows = layers.Input((4,))
    inner = tf_keras.Model(inner_rows, layers.Dense(3, name="end")(layers.Dense(8, "relu", name="hidden")(inner_rows)))
    rows = layers.Input((4,))
    network = tf_keras.Model(rows, layers.Dense(1, name="logits")(inner(rows)))
    hidden, end = inner.get_layer("hidden"), inner.get_layer("end")
    weaken(inner, [0, 2, 4, 6], "hidden")
    ignore(inner, [0, 2, 4, 6], "end")
    values: npt.NDArray[Any] = np.random.default_rng(2).normal(size=(6, 4)).astype("f4")
    expected = network(values).numpy()
    result = remove_channels(network, 0.5)
    assert result.removed == {"hidden": (8, 4)}
    float32_sum(8, largest=10.0).assert_close(result.network(values).numpy(), expected)
    assert (hidden.units, end.get_weights()[0].shape) == (8, (8, 3))
