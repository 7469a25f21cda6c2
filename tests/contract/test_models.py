"""Every model under one contract: it builds, overfits 64 rows, in 16 bits as well, and saves whole."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.features import weighted_ids
from components.features.feature_spec import Dense, Ids
from components.models import labels, layers, tabular
from components.models.build import build
from components.models.config import ANOMALY_KIND, IMAGE_KINDS, WITHOUT_NETWORK, ModelConfig
from components.models.inputs import Inputs
from components.models.registry import MODELS
from tests.support.data.tolerances import Tolerance, float32_sum, rounding

INPUTS = {
    "all": Inputs({"a": Dense(), "pixels": Dense(6), "x": Ids(5), "y": Ids(1000), "z": Ids(5)}),
    "several": Inputs({"a": Dense(), "words": Ids(50, values=4), "x": Ids(5, width=3)}),
    "numbers": Inputs({"a": Dense(), "b": Dense()}),
    "ids": Inputs({"x": Ids(300)}),
    "histories": Inputs(
        {
            "a": Dense(),
            "item": Ids(40),
            "kind": Ids(7),
            "items": Ids(40, values=5, is_history=True, shares="item"),
            "kinds": Ids(7, values=5, is_history=True, shares="kind", along="items"),
            "gaps": Ids(33, values=5, is_history=True, along="items"),
            "words": Ids(20, values=3, is_history=True),
        }
    ),
}


extended, slow = pytest.mark.extended, pytest.mark.slow
OF_INPUTS = ["histories", *(pytest.param(name, marks=extended) for name in INPUTS if name != "histories")]
"""In `make test`, the inputs that have the most kinds of features."""

KINDS = [kind for kind in MODELS if kind not in ("ensemble", "two_tower", ANOMALY_KIND, *IMAGE_KINDS)]
"""Not ensemble, whose network is that of tabm, and not those that need an image; for two_tower see test_two_towers, for
autoencoder test_autoencoders."""

IN_SHORT = {"mlp", "din", "esmm", "tabm", "final_mlp"}
"""One kind of each file of models: with these, `make test` also trains and rounds, for which networks are traced."""
OF_KINDS = {kind: pytest.param(kind, marks=() if kind in IN_SHORT else extended) for kind in KINDS}

TOLERANCE = {"mixed_bfloat16": 4e-2, "mixed_float16": 5e-3}
"""How far logits may be from float32's, as a share of the largest: ten times the last of the 8 or 11 bits kept."""


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Iterator[str]:
    """Set the tf_keras policy that the test requests, and reset it afterwards."""
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(request.param)
    yield request.param
    tf_keras.mixed_precision.set_global_policy(before)


def batch(inputs: Inputs, rows: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    tensors: dict[str, Any] = {
        name: random.integers(0, ids.cardinality, rows if ids.values == 1 else (rows, ids.values))
        for name, ids in inputs.ids.items()
    }
    for name, numbers in inputs.dense.items():
        shape = rows if numbers.width == 1 else (rows, numbers.width)
        tensors[name] = random.normal(size=shape).astype(np.float32)
    return tensors


def small(kind: str, units: int = 8) -> ModelConfig:
    return ModelConfig(kind=kind, **({} if kind == "linear" else {"hidden": (units,)}))


def test_every_kind_of_the_config_is_registered() -> None:
    kinds = set(get_args(ModelConfig.model_fields["kind"].annotation))
    assert {*MODELS, *WITHOUT_NETWORK} == kinds
    assert tabular.mlp is MODELS["mlp"]
    assert MODELS["ensemble"] is MODELS["tabm"]


@pytest.mark.parametrize("outputs", [pytest.param(1, marks=extended), 3])
@pytest.mark.parametrize("input_kind", OF_INPUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_model_builds_and_gives_a_logit_per_output(kind: str, input_kind: str, outputs: int) -> None:
    inputs = INPUTS[input_kind]
    deep = {} if kind == "linear" else {"hidden": (8,), "dropout": 0.5, "normalisation": "layer"}
    model = build(ModelConfig(kind=kind, **deep), inputs, outputs)
    assert model.optimizer is None, "compiling is the Trainer's"
    logits = model(batch(inputs, 7), training=False)
    assert logits.shape == ((7, 8, outputs) if kind == "tabm" else (7, outputs))
    assert logits.dtype == tf.float32
    assert {tensor.name for tensor in model.inputs} == set(inputs.features)


@pytest.mark.extended
@pytest.mark.parametrize("input_kind", OF_INPUTS)
@pytest.mark.parametrize("policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=slow)], indirect=True)
@pytest.mark.parametrize(
    "kind", [OF_KINDS[kind] for kind in KINDS if kind != "linear"]
)  # a linear model has only the layer of logits
def test_in_16_bits_variables_and_logits_stay_float32(kind: str, policy: str, input_kind: str) -> None:
    rows = batch(INPUTS[input_kind], 32)
    mixed = build(small(kind), INPUTS[input_kind], 2)
    assert {layer.compute_dtype for layer in mixed.layers} > {policy.removeprefix("mixed_")}
    assert {variable.dtype for variable in mixed.variables} == {tf.float32}
    weights, expected = in_32_bits(kind, input_kind)
    mixed.set_weights(weights)
    logits = mixed(rows, training=False)
    assert logits.dtype == tf.float32
    assert (logits.numpy() != tf.cast(logits, policy.removeprefix("mixed_")).numpy()).any(), "rounded to 16 bits"
    np.testing.assert_allclose(logits.numpy(), expected, atol=TOLERANCE[policy] * np.abs(expected).max())


@functools.cache
def in_32_bits(kind: str, input_kind: str) -> tuple[list[Any], Any]:
    """Return weights of a network, and its float32 outputs with them."""
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("float32")
    whole = build(small(kind), INPUTS[input_kind], 2)
    tf_keras.mixed_precision.set_global_policy(before)
    # Use larger weights than the initial ones, without zeros.
    random = np.random.default_rng(2)
    weights = [random.normal(scale=0.5, size=variable.shape).astype(np.float32) for variable in whole.variables]
    whole.set_weights(weights)
    return weights, whole(batch(INPUTS[input_kind], 32), training=False).numpy()


@pytest.mark.parametrize(
    "policy",
    ["float32", pytest.param("mixed_bfloat16", marks=slow), pytest.param("mixed_float16", marks=slow)],
    indirect=True,
)
@pytest.mark.parametrize("kind", OF_KINDS.values())
def test_model_overfits_64_rows(kind: str, policy: str) -> None:
    tf_keras.utils.set_random_seed(1)
    rows = batch(INPUTS["all"], 64)
    label = np.random.default_rng(1).integers(0, 2, (64, 1)).astype(np.float32)
    model = build(small(kind, 32), INPUTS["all"], 1)
    loss = tf_keras.losses.BinaryCrossentropy(from_logits=True)
    optimizer = tf_keras.optimizers.Adam(0.05)

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            logits = model(rows, training=True)
            # Members learn independently.
            value = loss(label if logits.shape.rank == 2 else tf.tile(label[:, None], [1, 8, 1]), logits)
        optimizer.apply_gradients(
            zip(tape.gradient(value, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return value

    values = [float(step()) for _ in range(200 if kind == "linear" else 100)]
    assert values[-1] < 0.02 < values[0]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("kind", "rate", "options"), [("din", 0.02, {}), pytest.param("bst", 0.005, {"blocks": 2}, marks=pytest.mark.slow)]
)
def test_attention_finds_whether_the_candidate_is_in_the_history(kind: str, rate: float, options: Any) -> None:
    tf_keras.utils.set_random_seed(3)
    inputs = Inputs({"item": Ids(30), "items": Ids(30, values=6, is_history=True, shares="item")})
    model = build(ModelConfig(kind=kind, hidden=(16,), embedding=8, **options), inputs, 1)
    optimizer = tf_keras.optimizers.Adam(rate)

    def rows(seed: int, count: int) -> tuple[dict[str, Any], Any]:
        random = np.random.default_rng(seed)
        items = random.integers(1, 30, (count, 6)) * (np.arange(6) < random.integers(0, 7, (count, 1)))
        item = np.where(random.random(count) < 0.5, items[:, 0], random.integers(1, 30, count))
        item = np.where(item == 0, 1, item)
        return {"item": tf.constant(item), "items": tf.constant(items)}, (items == item[:, np.newaxis]).any(axis=1)

    @tf.function(autograph=False)
    def step(batch: dict[str, Any], label: Any) -> None:
        with tf.GradientTape() as tape:
            logits = model(batch, training=True)[:, 0]
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.variables), model.variables, strict=True))

    for number in range(500):
        inputs_batch, label = rows(number, 128)
        step(inputs_batch, tf.constant(label, tf.float32))
    inputs_batch, label = rows(10_000, 4000)
    right = (model(inputs_batch, training=False)[:, 0].numpy() > 0) == label
    # An mlp, which averages the events, reaches 0.81 here, and 0.91 after 2,000 steps.
    assert right.mean() > 0.93


def test_esmm_multiplies_the_probabilities_of_a_chain() -> None:
    model = build(ModelConfig(kind="esmm", hidden=(8,)), INPUTS["all"], 3)
    rows = batch(INPUTS["all"], 50)
    alone = [tf_keras.Model(model.inputs, model.get_layer(f"own_{number}_logits").output)(rows) for number in range(3)]
    spread = np.concatenate([200 * value for value in alone], axis=1)
    for row_values, logits in ((np.concatenate(alone, axis=1), model(rows).numpy()), (spread, apply_chain(spread))):
        # Three roundings of logits down to log(1e-30); the error is relative to the probability.
        near = Tolerance(rounding(3, largest=-np.log(1e-30)).atol, 1e-30)
        near.assert_close(tf.sigmoid(logits), np.cumprod(tf.sigmoid(row_values), axis=1))
        assert np.isfinite(logits).all()


def apply_chain(row_values: Any) -> Any:
    """Apply the layer `logits` of esmm alone."""
    return labels._chain(
        [tf.constant(row_values[:, number : number + 1]) for number in range(row_values.shape[1])]
    ).numpy()


def test_experts_are_shared_and_gates_are_not() -> None:
    model = build(ModelConfig(kind="mmoe", hidden=(8, 4), experts=3), INPUTS["all"], 2)
    names = {layer.name for layer in model.layers}
    assert {"expert_0_0", "expert_2_0", "gate_0", "gate_1", "own_0_0", "own_1_0"} <= names
    assert model.get_layer("expert_0_0").units == 8
    assert (model.get_layer("own_0_0").units, model.get_layer("gate_1").units) == (4, 3)
    rows = batch(INPUTS["all"], 6)
    gate, experts, mixed = (
        tf_keras.Model(model.inputs, model.get_layer(name).output)(rows).numpy()
        for name in ("gate_1", "experts", "mixed_1")
    )
    float32_sum(3).assert_close(mixed, np.einsum("be,bew->bw", gate, experts))
    rounding(8).assert_close(gate.sum(axis=1), 1)


@pytest.mark.parametrize("kind", OF_KINDS.values())
def test_model_saves_and_loads_with_the_same_predictions(kind: str, tmp_path: Path) -> None:
    model = build(small(kind), INPUTS["all"], 2)
    rows = {name: tf.constant(values) for name, values in batch(INPUTS["all"], 9).items()}
    model.save_weights(str(tmp_path / "weights"))
    second_model = build(small(kind), INPUTS["all"], 2)
    second_model.load_weights(str(tmp_path / "weights")).expect_partial()
    np.testing.assert_array_equal(model(rows).numpy(), second_model(rows).numpy())


def test_columns_of_a_table_do_not_share_rows() -> None:
    table = layers.Table([3, 4], 2, "uniform")
    looked_up = table([tf.constant([0, 2], tf.int64), tf.constant([0, 3], tf.int64)]).numpy()
    assert looked_up.shape == (2, 2, 2)
    np.testing.assert_array_equal(looked_up[0, 1], table.rows.numpy()[3])
    np.testing.assert_array_equal(looked_up[1, 1], table.rows.numpy()[6])


def test_embedding_is_the_mean_over_present_ids() -> None:
    table = layers.Table([5, 3], 2, "uniform")
    ids = tf.constant([[4, 0, 2], [0, 0, 0], [1, 1, 3]], tf.int64)
    near = float32_sum(3, largest=0.05)
    looked_up, rows = table([ids, tf.constant([0, 1, 2], tf.int64)]).numpy(), table.rows.numpy()
    near.assert_close(looked_up[0, 0], (rows[4] + rows[2]) / 2)
    np.testing.assert_array_equal(looked_up[1, 0], [0, 0])
    near.assert_close(looked_up[2, 0], (2 * rows[1] + rows[3]) / 3)
    np.testing.assert_array_equal(looked_up[:, 1], rows[5:], "a single id has a row for none, too")


@pytest.mark.parametrize("quotients", [None, 2])
def test_embedding_of_weighted_ids_is_the_sum_of_their_products(quotients: int | None) -> None:
    ids = np.array([[4, 2, 0], [0, 0, 0], [3, 1, 2]])
    weights = np.array([[0.6, 0.8, 0], [0, 0, 0], [0.25, 0.5, 1]], np.float32)
    words = weighted_ids.pack(tf.constant(ids, tf.int64), tf.constant(weights))
    plain, weighted = Ids(5, values=3), Ids(5, values=3, is_weighted=True, quotients=quotients, composition="sum")
    table = layers.table("t", {"plain": plain, "words": weighted}, 2, "uniform")
    looked_up = table([tf.constant(ids, tf.int64), words]).numpy()
    # With two quotients, a vector is the sum of one of three rows and one of two, which are 0 at first.
    vectors = table.rows.numpy()[5:][np.arange(5) % 3 if quotients else np.arange(5)]
    float32_sum(3, largest=0.05).assert_close(looked_up[:, 1], np.einsum("bn,bnw->bw", weights, vectors[ids]))
    float32_sum(3, largest=0.05).assert_close(looked_up[0, 0], table.rows.numpy()[[4, 2]].mean(axis=0))
    copy = layers.Table.from_config(table.get_config())
    copy([tf.constant(ids, tf.int64), words])
    copy.set_weights(table.get_weights())
    np.testing.assert_array_equal(copy([tf.constant(ids, tf.int64), words]).numpy(), looked_up)


def test_linear_model_adds_the_weights_of_words() -> None:
    model = build(small("linear"), Inputs({"words": Ids(5, values=2, is_weighted=True)}), 1)
    [rows] = model.variables
    rows.assign([[0.0], [1.0], [10.0], [100.0], [1000.0]])
    packed = weighted_ids.pack(
        tf.constant([[3, 1], [2, 0], [0, 0]], tf.int64), tf.constant([[0.5, 0.25], [1, 0], [0, 0]])
    )
    float32_sum(2, largest=50).assert_close(model({"words": packed}).numpy(), [[50.25], [10], [0]])


COMPOSED = Inputs(
    {
        "a": Dense(),
        "item": Ids(103, quotients=10),
        "kind": Ids(7),
        "words": Ids(50, values=3, quotients=4, composition="sum"),
        "items": Ids(103, values=5, is_history=True, shares="item", quotients=10),
    }
)


def test_vectors_of_remainder_and_quotient_are_all_different() -> None:
    table = layers.table("t", {name: COMPOSED.ids[name] for name in ("item", "kind", "words")}, 4, "uniform")
    every = tf.range(103, dtype=tf.int64)
    tensors = [every, every % 7, tf.stack([every % 50, 0 * every, 0 * every], axis=1)]
    table(tensors)
    # 11 remainders and 10 quotients, 7 ids, 13 remainders and 4 quotients.
    assert (table.rows.shape, table.quotients.shape) == ((11 + 7 + 13, 4), (10 + 4, 4))
    rows, quotients = table.rows.numpy(), table.quotients.numpy()
    assert quotients.tolist() == [[1] * 4] * 10 + [[0] * 4] * 4
    table.quotients.assign(np.random.default_rng(0).normal(size=quotients.shape))
    quotients, looked_up = table.quotients.numpy(), table(tensors).numpy()
    ids = every.numpy()
    rounding(2, largest=0.1).assert_close(looked_up[:, 0], rows[ids % 11] * quotients[ids // 11])
    np.testing.assert_array_equal(looked_up[:, 1], rows[11 + ids % 7])
    words = ids % 50
    of_words = rows[18 + words % 13] + quotients[10 + words // 13]
    rounding(4).assert_close(looked_up[:, 2], of_words * (words > 0)[:, np.newaxis])
    assert len(np.unique(looked_up[:, 0], axis=0)) == 103


def test_gradients_of_composed_vectors_are_sparse() -> None:
    table = layers.table("t", {"item": COMPOSED.ids["item"]}, 4, "uniform")
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(table([tf.constant([0, 102], tf.int64)]))
    of_rows, of_quotients = tape.gradient(total, [table.rows, table.quotients])
    assert (of_rows.indices.numpy().tolist(), of_quotients.indices.numpy().tolist()) == ([0, 3], [0, 9])


@pytest.mark.parametrize("kind", OF_KINDS.values())
def test_every_model_composes_vectors(kind: str) -> None:
    model = build(small(kind), COMPOSED, 2)
    tables = [layer for layer in model.layers if isinstance(layer, layers.Table)]
    assert any(table.quotients is not None for table in tables)
    rows = batch(COMPOSED, 9)
    loaded = type(tables[0]).from_config(tables[0].get_config())
    assert loaded.divided == tables[0].divided
    assert np.isfinite(model(rows).numpy()).all()
    # The events have the vectors of the items.
    assert all(sum(shard.rows for shard in table.divided) == table.rows.shape[0] for table in tables)


def test_table_has_a_sparse_gradient() -> None:
    table = layers.Table([3, 4], 2, "uniform")
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
    layer_outputs = {layer.name: tf_keras.Model(model.inputs, layer.output) for layer in model.layers}
    vectors = [layer_outputs["embedding"](rows).numpy()] if inputs.ids else []
    if inputs.dense:
        vectors.append(layer_outputs["bottom_1"](rows).numpy()[:, None])
    stacked = np.concatenate(vectors, axis=1)
    assert stacked.shape == (5, count, 3)
    joining = vectors[-1].reshape(5, -1)
    pairs = [(stacked[:, row] * stacked[:, column]).sum(-1) for row in range(count) for column in range(row)]
    near = float32_sum(3, largest=np.abs(stacked).max() ** 2)
    near.assert_close(features, np.column_stack([joining, *pairs]))


def own(make: Callable[[Inputs, int], Any], monkeypatch: pytest.MonkeyPatch, outputs: int = 1) -> Any:
    """Build a network with a user-defined function."""
    monkeypatch.setitem(sys.modules, "theirs", types.SimpleNamespace(build=make, __file__="theirs.py"))
    return build(ModelConfig(build="theirs.build"), INPUTS["several"], outputs)


def network(inputs: Inputs, outputs: int, **last: Any) -> Any:
    tensors = layers.input_layers(inputs)
    numbers = tf_keras.layers.Reshape((1,))(tensors["a"])
    return tf_keras.Model(tensors, tf_keras.layers.Dense(outputs, **last)(numbers))


def test_network_of_the_users_own_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model = own(network, monkeypatch, outputs=3)
    assert model(batch(INPUTS["several"], 7)).shape == (7, 3)

    def wider(inputs: Inputs, outputs: int) -> Any:
        number = tf_keras.Input((1,), name="a")
        return tf_keras.Model({"a": number}, tf_keras.layers.Dense(outputs)(number))

    model = own(wider, monkeypatch)
    assert model({"a": tf.zeros([7])}).shape == (7, 1), "a number has [batch] or [batch, 1]"


def _build_on(name: str, shape: tuple[int, ...], dtype: str = "float32") -> Callable[[Inputs, int], Any]:
    def make(inputs: Inputs, outputs: int) -> Any:
        tensor = tf_keras.Input(shape, name=name, dtype=dtype)
        flat = tf_keras.layers.Flatten()(tf_keras.layers.Lambda(lambda x: tf.cast(x, tf.float32))(tensor))
        return tf_keras.Model({name: tensor}, tf_keras.layers.Dense(outputs)(flat))

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda _, outputs: None, "received builtins.NoneType", id="nothing"),
        pytest.param(lambda _, outputs: tf_keras.Sequential(), "without symbolic inputs", id="no-inputs"),
        pytest.param(lambda inputs, outputs: network(inputs, 2), r"output has shape \(None, 2\)", id="outputs"),
        pytest.param(lambda inputs, _: network(inputs, 1, dtype="float16"), "its output is float16", id="16-bits"),
        pytest.param(_build_on("word", (4,)), "input 'word' is not a feature; did you mean 'words'", id="no-feature"),
        pytest.param(_build_on("words", (5,), "int64"), r"\[None, 5\], and the feature \[None, 4\]", id="shape"),
        pytest.param(_build_on("words", (4,)), "'words' is float32, and the feature is int64 ids", id="dtype"),
    ],
)
def test_network_of_another_signature_is_rejected(monkeypatch: pytest.MonkeyPatch, make: Any, message: str) -> None:
    with pytest.raises(InputError, match=rf"theirs.build: expected a tf_keras.Model or a keras.Model .*{message}"):
        own(make, monkeypatch)
