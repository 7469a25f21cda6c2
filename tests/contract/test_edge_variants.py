"""The kinds of variants change a network as stated (zeros, clusters, rounding), in the stated layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.compat.tensorflow import clone_lambda_layers, leave_unconverted
from components.edge import fine_tuning
from components.edge.channel_pruning import remove_channels
from components.edge.config import VariantConfig
from components.edge.fine_tuning import NotMadeError, fine_tune
from components.features.feature_spec import Dense, Ids
from components.models import keras3
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs

pytestmark = pytest.mark.both_lines

STEPS = 20
ROWS = {
    "a": np.linspace(-2, 2, 64, dtype=np.float32),
    "id": np.arange(64) % 7,
}
LABEL = (ROWS["a"] + ROWS["id"] > 2).astype(np.float32)


def network() -> tf_keras.Model:
    """Build a network with a Lambda layer and a table of IDs, which TFMOT does not support; both have one input."""
    tf_keras.utils.set_random_seed(1)
    inputs = Inputs({"a": Dense(), "id": Ids(7)})
    return build(ModelConfig(kind="mlp", hidden=(16, 8)), inputs, 1)


def fit(model: tf_keras.Model, callbacks: list[tf_keras.callbacks.Callback]) -> None:
    model.compile("adam", tf_keras.losses.BinaryCrossentropy(from_logits=True))
    rows = tf.data.Dataset.from_tensor_slices((ROWS, LABEL)).batch(16).repeat()
    model.fit(rows, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)


def kernels(model: tf_keras.Model) -> list[Any]:
    return [variable.numpy() for variable in model.weights if variable.name.endswith("kernel:0")]


@pytest.fixture(autouse=True)
def _as_in_the_process_that_trains_variants() -> None:
    clone_lambda_layers()
    leave_unconverted("tf_keras")


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        ({"kind": "pruned", "sparsity": 0.75}, lambda kernel: np.mean(kernel == 0) == pytest.approx(0.75, abs=0.05)),
        ({"kind": "pruned", "sparsity": "2:4"}, lambda kernel: len(kernel) % 4 or np.mean(kernel == 0) == 0.5),
        ({"kind": "clustered", "clusters": 4}, lambda kernel: len(np.unique(kernel)) <= 4),
        pytest.param(
            {"kind": "pruned", "sparsity": 0.5, "clusters": 4, "qat": True},
            lambda kernel: np.mean(kernel == 0) >= 0.45 and len(np.unique(kernel)) <= 4,
            marks=pytest.mark.slow,
        ),
        ({"kind": "qat"}, lambda kernel: len(np.unique(kernel)) > 4),
    ],
)
@pytest.mark.extended
def test_weights_have_what_the_kind_promises(options: dict[str, Any], holds: Callable[[Any], bool]) -> None:
    variant = VariantConfig(**options)
    tuned = fine_tune(network(), variant, STEPS, fit)
    assert all(holds(kernel) for kernel in kernels(tuned)), [np.unique(kernel) for kernel in kernels(tuned)]
    rounded = [layer for layer in tuned.layers if type(layer).__name__.startswith("Quantize")]
    assert bool(rounded) == variant.trains_rounding
    assert np.isfinite(tuned(ROWS).numpy()).all()


def test_optimized_and_other_layers_are_listed() -> None:
    assert [layer.name for layer in fine_tuning.find_optimized_layers(network())] == ["hidden_0", "hidden_1", "logits"]
    assert [layer.name for layer in fine_tuning.find_other_layers(network())] == ["embedding_4"]


def test_network_without_a_layer_to_optimize_is_refused() -> None:
    features = tf_keras.Input((4,))
    model = tf_keras.Model(features, tf_keras.layers.LayerNormalization()(features))
    with pytest.raises(NotMadeError, match="expected dense or convolutional layers"):
        fine_tune(model, VariantConfig(kind="clustered", clusters=4), STEPS, fit)


def test_layer_that_cannot_be_copied_is_a_reason() -> None:
    class Own(tf_keras.layers.Layer):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def call(self, values: tf.Tensor) -> tf.Tensor:
            return values * self.factor

    features = tf_keras.Input((4,))
    model = tf_keras.Model(features, tf_keras.layers.Dense(2)(Own(2.0)(features)))
    with pytest.raises(NotMadeError, match="TFMOT does not support the network for qat"):
        fine_tune(model, VariantConfig(kind="qat"), STEPS, fit)


@pytest.mark.parametrize(
    "options", [{"kind": "pruned", "sparsity": 0.5}, {"kind": "qat"}, {"kind": "clustered", "clusters": 4}]
)
def test_variant_of_a_keras_3_model_is_refused(options: dict[str, Any]) -> None:
    tensor = keras.Input((1,), name="a")
    network = keras3.wrap(keras.Model({"a": tensor}, keras.layers.Dense(1)(tensor)))
    message = "expected a tf_keras network .*, received a Keras 3 model"
    with pytest.raises(NotMadeError, match=message):
        fine_tune(network, VariantConfig(**options), STEPS, fit)
    with pytest.raises(NotMadeError, match=message):
        remove_channels(network, 0.5)
