"""ple and final_mlp against NumPy implementations of the papers' equations, with the same weights."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
import tf_keras

from components.features.feature_spec import Dense, Ids
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from tests.support.data.tolerances import Tolerance

Values: TypeAlias = npt.NDArray[np.float64]
NEAR = Tolerance(1e-5, 1e-5)
INPUTS = Inputs(
    {"age": Dense(), "vector": Dense(3), "user": Ids(6), "item": Ids(300), "words": Ids(9, values=2)},
    {"user": ("user",), "item": ("item",), "words": ("title",)},
)
ROWS = 11


def make_rows() -> dict[str, Any]:
    random = np.random.default_rng(4)
    return {
        "age": random.normal(size=ROWS).astype(np.float32),
        "vector": random.normal(size=(ROWS, 3)).astype(np.float32),
        "user": random.integers(0, 6, ROWS),
        "item": random.integers(0, 300, ROWS),
        "words": random.integers(0, 9, (ROWS, 2)),
    }


def build_random(outputs: int, **config: Any) -> tuple[Any, dict[str, Values]]:
    """Build a network with random weights; return it, and the weights by name."""
    model = build(ModelConfig(embedding=8, **config), INPUTS, outputs)
    random = np.random.default_rng(6)
    for variable in model.variables:
        variable.assign(random.normal(scale=0.6, size=variable.shape))
    return model, {variable.name.removesuffix(":0"): variable.numpy().astype(float) for variable in model.variables}


def embed(weights: dict[str, Values]) -> dict[str, Values]:
    """Look up the features by name: numbers, and the vectors of the IDs, whose tables begin at 0, 6 and 0."""
    rows = make_rows()
    narrow, wide = weights["embedding_4/rows"], weights["embedding_8/rows"]
    words = narrow[rows["words"] + 6] * (rows["words"] > 0)[:, :, np.newaxis]
    present = (rows["words"] > 0).sum(axis=1, keepdims=True)
    return {
        "age": rows["age"][:, np.newaxis].astype(float),
        "vector": rows["vector"].astype(float),
        "user": narrow[rows["user"]],
        "words": np.divide(words.sum(axis=1), present, out=np.zeros((ROWS, 4)), where=present > 0),
        "item": wide[rows["item"]],
    }


def dense(weights: dict[str, Values], name: str, below: Values) -> Values:
    return below @ weights[f"{name}/kernel"] + weights.get(f"{name}/bias", 0)


def relu(values: Values) -> Values:
    return np.maximum(values, 0)


def sigmoid(values: Values) -> Values:
    return 1 / (1 + np.exp(-values))


def softmax(values: Values) -> Values:
    exponentials = np.exp(values - values.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def compute_ple(weights: dict[str, Values], features: Values, levels: int, shared: int, own: int) -> Values:
    """Compute equations 5 to 8 of Tang et al. 2020 for two labels, whose experts have one layer."""
    below = {"label_0": features, "label_1": features, "shared": features}
    counts = {"label_0": own, "label_1": own, "shared": shared}
    for level in range(levels):
        experts = {
            group: [
                relu(dense(weights, f"level_{level}_{group}_expert_{number}_0", below[group]))
                for number in range(counts[group])
            ]
            for group in below
        }
        selected = {
            "label_0": experts["label_0"] + experts["shared"],
            "label_1": experts["label_1"] + experts["shared"],
            "shared": experts["label_0"] + experts["label_1"] + experts["shared"],
        }
        if level == levels - 1:
            del selected["shared"]
        below = {
            group: np.einsum(
                "be,ebw->bw", softmax(dense(weights, f"level_{level}_{group}_gate", below[group])), np.stack(members)
            )
            for group, members in selected.items()
        }
    return np.concatenate(
        [
            dense(weights, f"logits_{label}", relu(dense(weights, f"own_{label}_0", below[f"label_{label}"])))
            for label in (0, 1)
        ],
        axis=1,
    )


@pytest.mark.parametrize(("levels", "shared", "own"), [(1, 3, 1), (3, 2, 2)])
def test_ple_computes_the_equations_of_the_paper(levels: int, shared: int, own: int) -> None:
    options = {"levels": levels, "experts": shared, "label_experts": own}
    model, weights = build_random(2, kind="ple", hidden=(7, 5), **options)
    features = np.concatenate([*embed(weights).values()], axis=1)
    expected = compute_ple(weights, features, levels, shared, own)
    assert np.abs(expected).max() > 0.5
    NEAR.assert_close(model(make_rows()).numpy(), expected)


def test_ple_has_the_number_of_weights_of_the_paper() -> None:
    model, weights = build_random(2, kind="ple", hidden=(7, 5), levels=3, experts=2, label_experts=2)
    width = 1 + 3 + 4 + 4 + 8
    tables = 6 * 4 + 9 * 4 + 300 * 8
    first = 6 * (width + 1) * 7 + 2 * (width + 1) * 4 + (width + 1) * 6
    second = 6 * (7 + 1) * 7 + 2 * (7 + 1) * 4 + (7 + 1) * 6
    # The last level does not have a gate of all experts.
    third = second - (7 + 1) * 6
    towers = 2 * ((7 + 1) * 5 + (5 + 1))
    assert (
        sum(value.size for value in weights.values())
        == tables + first + second + third + towers
        == model.count_params()
    )


def test_last_experts_and_gates_of_a_label_are_trained_by_that_label_alone() -> None:
    model, _ = build_random(2, kind="ple", hidden=(7, 5), levels=2, experts=2, label_experts=1)
    rows = make_rows()
    moved = {}
    for label in (0, 1, slice(None)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(rows)[:, label])
        gradients = zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True)
        moved[str(label)] = {
            variable.name for variable, gradient in gradients if gradient is not None and np.any(gradient)
        }
    every = {variable.name for variable in model.variables}
    assert moved[str(slice(None))] == every
    # The shared gate of the first level reads the experts of both labels, so both labels train them.
    only_second = ("level_0_label_1_gate", "level_1_label_1_", "own_1", "logits_1")
    assert every - moved["0"] == {name for name in every if name.startswith(only_second)}


def compute_final_mlp(weights: dict[str, Values], gates: tuple[Values, Values], features: Values) -> Values:
    """Compute equations 4 to 9 of Mao et al. 2023 for two outputs and two heads."""
    streams = []
    for name, gate in zip(("first", "second"), gates, strict=True):
        below = 2 * sigmoid(gate) * features
        for depth in (0, 1):
            below = relu(dense(weights, f"{name}_hidden_{depth}", below))
        streams.append(below)
    first, second = streams
    matrices, bilinear = weights["products/matrices"], np.zeros((ROWS, 2))
    for output in (0, 1):
        for head in (0, 1):
            part = slice(3 * head, 3 * head + 3)
            bilinear[:, output] += ((first[:, part] @ matrices[head, :, :, output]) * second[:, part]).sum(axis=1)
    return dense(weights, "first_logits", first) + dense(weights, "second_logits", second) + bilinear


def compute_gate(weights: dict[str, Values], name: str, below: Values) -> Values:
    return dense(weights, f"{name}_gate", relu(dense(weights, f"{name}_gate_hidden", below)))


@pytest.mark.parametrize("gates", [{}, {"first_gate": ("user", "age"), "second_gate": ("item", "title")}])
def test_final_mlp_computes_the_equations_of_the_paper(gates: Any) -> None:
    model, weights = build_random(2, kind="final_mlp", hidden=(7, 6), heads=2, **gates)
    embedded = embed(weights)
    features = np.concatenate([*embedded.values()], axis=1)
    if not gates:
        expected_gates = weights["first_gate/gate"], weights["second_gate/gate"]
    else:
        by_user = np.concatenate([embedded["age"], embedded["user"]], axis=1)
        by_item = np.concatenate([embedded["words"], embedded["item"]], axis=1)
        expected_gates = compute_gate(weights, "first", by_user), compute_gate(weights, "second", by_item)
    NEAR.assert_close(model(make_rows()).numpy(), compute_final_mlp(weights, expected_gates, features))
    gate_weights = 2 * 20 if not gates else (5 + 12 + 2) * 7 + 2 * (7 + 1) * 20
    towers = 2 * ((20 + 1) * 7 + (7 + 1) * 6)
    fusion = (6 + 1) * 2 + 6 * 2 + 2 * 3 * 3 * 2
    assert model.count_params() == 6 * 4 + 9 * 4 + 300 * 8 + gate_weights + towers + fusion


def test_constant_gates_begin_with_the_features_themselves() -> None:
    model = build(ModelConfig(kind="final_mlp", hidden=(7, 6)), INPUTS, 1)
    below = tf_keras.Model(model.inputs, [model.get_layer("features").output, model.get_layer("first_gate").output])
    features, gated = below(make_rows())
    np.testing.assert_array_equal(features.numpy(), gated.numpy())


@pytest.mark.extended
def test_ple_is_as_good_as_a_shared_network_of_its_size_where_labels_have_no_features_in_common() -> None:
    """Each label is the sign of a product, and the products have orthogonal factors."""
    inputs = Inputs({"numbers": Dense(8)})
    factors = np.linalg.qr(np.random.default_rng(12).normal(size=(8, 8)))[0][:, :4].reshape(8, 2, 2)

    def make(random: np.random.Generator, rows: int) -> tuple[Any, Any]:
        numbers = random.normal(size=(rows, 8))
        labels = np.stack([np.prod(numbers @ factors[:, label], axis=1) > 0 for label in (0, 1)], axis=1)
        return {"numbers": tf.constant(numbers, tf.float32)}, tf.constant(labels, tf.float32)

    def compute_loss(model: Any, rows: Any, labels: Any) -> Any:
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, model(rows, training=True)))

    def train(model: Any, seed: int) -> float:
        optimizer, random = tf_keras.optimizers.Adam(0.01), np.random.default_rng(seed)

        @tf.function(autograph=False)
        def step(rows: Any, labels: Any) -> None:
            with tf.GradientTape() as tape:
                loss = compute_loss(model, rows, labels)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

        for _ in range(400):
            step(*make(random, 256))
        return float(compute_loss(model, *make(np.random.default_rng(99), 8000)))

    experts = {"experts": 2, "label_experts": 1, "levels": 1}
    sizes, losses = [], []
    for kind, options in (("mlp", {"hidden": (40, 16)}), ("ple", {"hidden": (16, 8), **experts})):
        kind_losses = []
        for seed in (0, 1):
            tf_keras.utils.set_random_seed(seed)
            model = build(ModelConfig(kind=kind, **options), inputs, 2)
            kind_losses.append(train(model, seed))
        sizes.append(model.count_params())
        losses.append(np.mean(kind_losses))
    assert (sizes, losses[1] <= losses[0] < 0.1) == ([1050, 920], True), losses


@pytest.mark.extended
def test_final_mlp_can_be_converted_for_devices() -> None:
    model, _ = build_random(2, kind="final_mlp", hidden=(7, 6), first_gate=("user",))
    rows = {name: tf.constant(values) for name, values in make_rows().items()}
    specs = {name: tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype, name) for name, tensor in rows.items()}
    predict = tf.function(lambda **features: {"logits": model(features)}, autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([predict.get_concrete_function(**specs)], model)
    interpreter = tf.lite.Interpreter(model_content=converter.convert())
    answers = interpreter.get_signature_runner()(**{name: tensor.numpy() for name, tensor in rows.items()})
    NEAR.assert_close(answers["logits"], model(rows).numpy())
