"""Tests of models for images: they build for every size, learn, and only load weights from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.features.feature_spec import Dense, Ids
from components.models.build import build
from components.models.config import ModelConfig
from components.models.images import frozen_variables
from components.models.inputs import Inputs

pytestmark = pytest.mark.both_lines


def image(height: int, width: int, channels: int = 3) -> Dense:
    return Dense(height * width * channels, image=(height, width, channels))


def batch(inputs: Inputs, rows: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    features: dict[str, Any] = {name: random.integers(0, ids.cardinality, rows) for name, ids in inputs.ids.items()}
    for name, numbers in inputs.dense.items():
        features[name] = random.random(rows if numbers.width == 1 else (rows, numbers.width), np.float32)
    return features


@pytest.mark.parametrize(
    "inputs",
    [
        Inputs({"photo": image(8, 8, 1)}),
        Inputs({"photo": image(5, 7)}),
        pytest.param(Inputs({"photo": image(224, 96)}), marks=pytest.mark.extended),
        Inputs({"front": image(8, 8), "age": Dense(), "back": image(16, 8, 1), "plan": Ids(5)}),
    ],
    ids=lambda inputs: "+".join(inputs.features),
)
def test_cnn_returns_a_logit_per_output(inputs: Inputs) -> None:
    network = build(ModelConfig(kind="cnn", filters=(8, 12), hidden=(8,), dropout=0.1), inputs, 3)
    logits = network(batch(inputs, 5), training=False)
    assert logits.shape == (5, 3)
    assert logits.dtype == tf.float32
    # The logits of a row do not depend on other rows.
    alone = network({name: values[:1] for name, values in batch(inputs, 5).items()}, training=False)
    np.testing.assert_allclose(alone, logits[:1], atol=1e-4)


@pytest.mark.extended
def test_cnn_learns_the_direction_of_stripes() -> None:
    random = np.random.default_rng(0)
    stripes = np.tile(np.array([0, 1], np.float32), (64, 8, 4))
    label = random.integers(0, 2, 64)
    stripes[label == 1] = stripes[label == 1].transpose(0, 2, 1)
    images = tf.constant((stripes + random.normal(0, 0.3, stripes.shape)).astype(np.float32).reshape(64, -1))
    tf_keras.utils.set_random_seed(1)
    network = build(ModelConfig(kind="cnn", filters=(8,)), Inputs({"photo": image(8, 8, 1)}), 1)
    optimizer = tf_keras.optimizers.Adam(0.02)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = network({"photo": images}, training=True)[:, 0]
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label.astype(np.float32), logits))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, network.trainable_variables), network.trainable_variables, strict=True)
        )
        return loss

    losses = [float(step()) for _ in range(100)]
    assert losses[-1] < 0.1 < 0.5 < losses[0]


def mobile(**options: Any) -> ModelConfig:
    return ModelConfig(kind="application", application="MobileNet", **options)


@pytest.mark.extended
def test_application_loads_weights_from_a_file_and_keeps_its_moments(tmp_path: Path) -> None:
    source = tf_keras.applications.MobileNet(include_top=False, weights=None, pooling="avg", input_shape=(32, 32, 3))
    path = str(tmp_path / "mobile.weights.h5")
    source.save_weights(path)
    inputs = Inputs({"photo": image(32, 32)})
    network = build(mobile(weights=path), inputs, 2)
    features = batch(inputs, 4)
    pooled = source(features["photo"].reshape(4, 32, 32, 3) * 2 - 1, training=False)
    expected = network.get_layer("logits")(pooled)
    np.testing.assert_allclose(network(features, training=True), expected, rtol=1e-3, atol=1e-5)
    frozen = frozen_variables(network)
    trainable_names = [variable.name for variable in network.trainable_variables if id(variable) not in frozen]
    assert sorted(trainable_names) == ["logits/bias:0", "logits/kernel:0"]
    with pytest.raises(InputError, match=r"model\.weights: expected the weights of MobileNet"):
        build(mobile(weights=str(tmp_path / "none.weights.h5")), inputs, 2)


SMALLEST = {
    "EfficientNetB0": pytest.mark.extended,
    **dict.fromkeys(
        (
            *("ConvNeXtTiny", "DenseNet121", "EfficientNetV2B0", "InceptionResNetV2", "InceptionV3", "MobileNet"),
            *("MobileNetV2", "NASNetMobile", "RegNetX002", "ResNet50", "ResNet50V2", "ResNetRS50"),
            *("VGG16", "Xception"),
        ),
        pytest.mark.slow,
    ),
}
"""The smallest network of each module of tf_keras.applications → mark."""


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", ["cnn", *(pytest.param(name, marks=mark) for name, mark in SMALLEST.items())])
def test_in_16_bits_variables_and_logits_of_images_stay_float32(name: str, policy: str) -> None:
    size = 80 if name.startswith(("Inception", "Xception")) else 32
    inputs = Inputs({"photo": image(size, size)})
    options = {"kind": "cnn", "filters": (8,)} if name == "cnn" else {"kind": "application", "application": name}
    whole = build(ModelConfig.model_validate(options), inputs, 2)
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(policy)
    try:
        mixed = build(ModelConfig.model_validate(options), inputs, 2)
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
    assert {variable.dtype for variable in mixed.variables if variable.dtype.is_floating} == {tf.float32}
    mixed.set_weights(whole.get_weights())
    expected, logits = (network(batch(inputs, 4), training=False) for network in (whole, mixed))
    assert logits.dtype == tf.float32
    assert (logits.numpy() != expected.numpy()).any(), "computed in 32 bits"
    np.testing.assert_allclose(logits, expected, atol=0.05 * np.abs(expected).max() + 0.01)


def test_unknown_application_is_an_error() -> None:
    with pytest.raises(InputError, match=r"tf_keras\.applications has no 'MobilNet'; did you mean 'MobileNet'"):
        build(ModelConfig(kind="application", application="MobilNet"), Inputs({"photo": image(32, 32)}), 2)


def test_image_size_that_an_application_does_not_support_is_an_error() -> None:
    with pytest.raises(InputError, match=r"MobileNet does not take images of \(16, 16, 3\)"):
        build(mobile(), Inputs({"photo": image(16, 16)}), 2)
