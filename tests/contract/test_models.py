"""Every model under one contract: it builds, overfits 64 rows, in 16 bits as well, and saves whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features.ops import Dense, Ids
from components.models import tabular
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.models.registry import MODELS

INPUTS = {
    "all": Inputs({"a": Dense(), "pixels": Dense(6), "x": Ids(5), "y": Ids(1000), "z": Ids(5)}),
    "numbers": Inputs({"a": Dense(), "b": Dense()}),
    "ids": Inputs({"x": Ids(300)}),
}


TOLERANCE = {"mixed_bfloat16": 4e-2, "mixed_float16": 5e-3}
"""How far logits may be from float32's, as a share of the largest: ten times the last of the 8 or 11 bits kept."""


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Iterator[str]:
    """The policy of tf_keras that the test asks for, set back after it."""
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(request.param)
    yield request.param
    tf_keras.mixed_precision.set_global_policy(before)


def batch(inputs: Inputs, rows: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    given: dict[str, Any] = {name: random.integers(0, ids.cardinality, rows) for name, ids in inputs.ids.items()}
    for name, numbers in inputs.dense.items():
        shape = rows if numbers.width == 1 else (rows, numbers.width)
        given[name] = random.normal(size=shape).astype(np.float32)
    return given


def test_every_kind_of_the_config_is_registered() -> None:
    assert set(MODELS) == set(get_args(ModelConfig.model_fields["kind"].annotation))
    assert tabular.mlp is MODELS["mlp"]


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("kind", MODELS)
def test_a_model_builds_and_gives_a_logit_per_output(kind: str, given: str, outputs: int) -> None:
    inputs = INPUTS[given]
    model = build(ModelConfig(kind=kind, hidden=(8,), dropout=0.5), inputs, outputs)
    assert model.optimizer is None, "compiling is the Trainer's"
    logits = model(batch(inputs, 7), training=False)
    assert logits.shape == (7, outputs)
    assert logits.dtype == tf.float32
    assert {tensor.name for tensor in model.inputs} == set(inputs.features)


@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("policy", TOLERANCE, indirect=True)
@pytest.mark.parametrize("kind", MODELS)
def test_in_16_bits_variables_and_logits_stay_float32(kind: str, policy: str, given: str) -> None:
    config, rows = ModelConfig(kind=kind, hidden=(8,)), batch(INPUTS[given], 32)
    mixed = build(config, INPUTS[given], 2)
    assert {layer.compute_dtype for layer in mixed.layers} > {policy.removeprefix("mixed_")}
    assert {variable.dtype for variable in mixed.variables} == {tf.float32}
    # Larger than what they begin with, and none of them zero.
    random = np.random.default_rng(2)
    weights = [random.normal(scale=0.5, size=variable.shape).astype(np.float32) for variable in mixed.variables]
    mixed.set_weights(weights)
    logits = mixed(rows, training=False)
    assert logits.dtype == tf.float32
    assert (logits.numpy() != tf.cast(logits, policy.removeprefix("mixed_")).numpy()).any(), "rounded to 16 bits"
    tf_keras.mixed_precision.set_global_policy("float32")
    whole = build(config, INPUTS[given], 2)
    whole.set_weights(weights)
    wanted = whole(rows, training=False).numpy()
    np.testing.assert_allclose(logits.numpy(), wanted, atol=TOLERANCE[policy] * np.abs(wanted).max())


@pytest.mark.parametrize("policy", ["float32", *TOLERANCE], indirect=True)
@pytest.mark.parametrize("kind", MODELS)
def test_a_model_overfits_64_rows(kind: str, policy: str) -> None:
    tf_keras.utils.set_random_seed(1)
    rows = batch(INPUTS["all"], 64)
    label = np.random.default_rng(1).integers(0, 2, (64, 1)).astype(np.float32)
    model = build(ModelConfig(kind=kind, hidden=(32,)), INPUTS["all"], 1)
    loss = tf_keras.losses.BinaryCrossentropy(from_logits=True)
    optimizer = tf_keras.optimizers.Adam(0.05)

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            value = loss(label, model(rows, training=True))
        optimizer.apply_gradients(
            zip(tape.gradient(value, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return value

    values = [float(step()) for _ in range(100)]
    assert values[-1] < 0.02 < values[0]


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_saves_and_loads_with_the_same_predictions(kind: str, tmp_path: Path) -> None:
    model = build(ModelConfig(kind=kind, hidden=(8,)), INPUTS["all"], 2)
    rows = {name: tf.constant(values) for name, values in batch(INPUTS["all"], 9).items()}
    model.save_weights(str(tmp_path / "weights"))
    other = build(ModelConfig(kind=kind, hidden=(8,)), INPUTS["all"], 2)
    other.load_weights(str(tmp_path / "weights")).expect_partial()
    np.testing.assert_array_equal(model(rows).numpy(), other(rows).numpy())


def test_the_columns_of_a_table_do_not_share_rows() -> None:
    table = tabular.Table([3, 4], 2, "uniform")
    looked_up = table([tf.constant([0, 2], tf.int64), tf.constant([0, 3], tf.int64)]).numpy()
    assert looked_up.shape == (2, 2, 2)
    np.testing.assert_array_equal(looked_up[0, 1], table.rows.numpy()[3])
    np.testing.assert_array_equal(looked_up[1, 1], table.rows.numpy()[6])


def test_a_table_has_a_sparse_gradient() -> None:
    table = tabular.Table([3, 4], 2, "uniform")
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(table([tf.constant([0, 2], tf.int64), tf.constant([0, 2], tf.int64)]))
    gradient = tape.gradient(total, table.rows)
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.indices.numpy().tolist() == [0, 3, 2, 5]


@pytest.mark.parametrize(
    ("inputs", "count"),
    [
        (INPUTS["all"], 4),
        (INPUTS["numbers"], 1),
        (INPUTS["ids"], 1),
        (Inputs({"x": Ids(3), "y": Ids(4), "z": Ids(5)}), 3),
    ],
)
def test_dlrm_multiplies_every_pair_of_vectors_once(inputs: Inputs, count: int) -> None:
    model = tabular.dlrm(ModelConfig(kind="dlrm", hidden=(8,), embedding=3), inputs, 1)
    rows = batch(inputs, 5)
    features = tf_keras.Model(model.inputs, model.get_layer("hidden_0").input)(rows).numpy()
    found = {layer.name: tf_keras.Model(model.inputs, layer.output) for layer in model.layers}
    vectors = [found["embedding"](rows).numpy()] if inputs.ids else []
    if inputs.dense:
        vectors.append(found["bottom_1"](rows).numpy()[:, None])
    stacked = np.concatenate(vectors, axis=1)
    assert stacked.shape == (5, count, 3)
    joining = vectors[-1].reshape(5, -1)
    pairs = [(stacked[:, row] * stacked[:, column]).sum(-1) for row in range(count) for column in range(row)]
    np.testing.assert_allclose(features, np.column_stack([joining, *pairs]), rtol=1e-5)
