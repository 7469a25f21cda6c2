"""Tests that a Keras 3 model in a network predicts and trains as Keras 3's own `predict` and `fit` do."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.features.feature_spec import Dense, Ids
from components.models import keras3
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.trainer import warm_start
from components.trainer.config import TrainingConfig
from components.trainer.gradients import create_gradient_function
from components.trainer.mesh import MeshCopies, create_mesh
from components.trainer.training_loop import _create_optimizer, _create_replica_step
from tests.support.programs import keras3_replicas
from tests.support.runs.command import ROOT
from tests.support.servers.in_fork_server import in_child

pytestmark = pytest.mark.both_lines

INPUTS = Inputs({"age": Dense(), "pixels": Dense(3), "plan": Ids(5), "words": Ids(9, values=4)})
BATCH, STEPS, RATE = 16, 4, 0.1


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Iterator[str]:
    """Set the policy of tf_keras that the test requests, as `training.precision` does, and reset it afterwards."""
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(request.param)
    yield request.param
    tf_keras.mixed_precision.set_global_policy(before)


def build_by(function: Callable[[Inputs, int], Any], monkeypatch: pytest.MonkeyPatch) -> tf_keras.Model:
    """Build a network as the Trainer does, with a user's function."""
    monkeypatch.setitem(sys.modules, "theirs", types.SimpleNamespace(build=function, __file__="theirs.py"))
    return build(ModelConfig(build="theirs.build"), INPUTS, 1)


def create_rows(count: int, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "age": random.normal(size=count).astype(np.float32),
        "pixels": random.normal(size=(count, 3)).astype(np.float32),
        "plan": random.integers(0, 5, count),
        "words": random.integers(0, 9, (count, 4)),
    }


def create_model(_inputs: Inputs, outputs: int) -> Any:
    """Build a model with a mask, a penalty, moving averages, dropout, a frozen layer and a loss of a layer."""
    layers, tensors = keras.layers, keras3.input_layers(INPUTS)
    words = layers.Embedding(9, 4, mask_zero=True)(tensors["words"])
    frozen = layers.Dense(3, trainable=False)
    parts = [
        layers.Reshape((1,))(tensors["age"]),
        frozen(tensors["pixels"]),
        layers.Flatten()(layers.Embedding(5, 2)(layers.Reshape((1,))(tensors["plan"]))),
        layers.GlobalAveragePooling1D()(words),
    ]
    hidden = layers.Dense(8, "relu", kernel_regularizer=keras.regularizers.L2(0.01))(layers.Concatenate()(parts))
    # The fit of Keras 3.15 fails with a loss of a layer in bfloat16.
    hidden = layers.ActivityRegularization(l1=0.001, dtype="float32")(layers.BatchNormalization()(hidden))
    hidden = layers.Dropout(0.5, seed=7)(hidden)
    return keras.Model(tensors, layers.Dense(outputs, dtype="float32")(hidden))


class Crossentropy:
    """A prediction head with the crossentropy of a binary label."""

    def losses(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.nn.sigmoid_cross_entropy_with_logits(label, logits)[:, 0]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("policy", "atol"),
    [
        ("float32", 5e-6),
        pytest.param("mixed_bfloat16", 5e-3, marks=pytest.mark.slow),
        pytest.param("mixed_float16", 1e-3, marks=pytest.mark.slow),
    ],
    indirect=["policy"],
)
def test_steps_are_those_of_fit(policy: str, atol: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = create_rows(BATCH * STEPS)
    label = np.random.default_rng(1).integers(0, 2, (BATCH * STEPS, 1)).astype(np.float32)
    keras.utils.set_random_seed(3)
    network = build_by(create_model, monkeypatch)
    keras.utils.set_random_seed(3)
    with keras3.building():
        expected = create_model(INPUTS, 1)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    # XLA may draw other random numbers for the dropout.
    expected.compile(keras.optimizers.SGD(RATE, momentum=0.9), loss, jit_compile=False)
    np.testing.assert_allclose(network(rows, training=False), expected.predict(rows, verbose=0), atol=atol)
    history = expected.fit(rows, label, batch_size=BATCH, shuffle=False, verbose=0)

    config = TrainingConfig.model_validate(
        {
            "optimizer": {"kind": "sgd", "momentum": 0.9},
            "schedule": {"kind": "constant"},
            "learning_rate": RATE,
            "precision": policy,
        }
    )
    optimizer = _create_optimizer(config)
    optimizer.build(network.trainable_variables)
    compute = create_gradient_function(network, optimizer, Crossentropy(), 1)  # type: ignore[arg-type]
    step = tf.function(_create_replica_step(network, optimizer, compute), autograph=False)
    losses = []
    for start in range(0, BATCH * STEPS, BATCH):
        part = {name: tf.constant(values[start : start + BATCH]) for name, values in rows.items()}
        losses.append(float(step((part, tf.constant(label[start : start + BATCH])))))

    assert np.mean(losses) == pytest.approx(history.history["loss"][-1], rel=1e-2 if atol > 1e-4 else 1e-5, abs=1e-7)
    ours = [*network.trainable_variables, *network.non_trainable_variables]
    theirs = [*expected.trainable_variables, *expected.non_trainable_variables]
    assert len(ours) == len(theirs) == 13
    for variable, reference in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(variable.numpy(), reference.numpy(), atol=atol, err_msg=reference.path)
    values = {variable.path: variable.numpy() for variable in theirs}
    assert (values["batch_normalization/moving_mean"] != 0).all(), "moving averages change"
    [state] = (value for path, value in values.items() if path.endswith("seed_generator_state"))
    assert state.tolist() == [7, STEPS], "every step draws other numbers"
    np.testing.assert_allclose(network(rows, training=False), expected.predict(rows, verbose=0), atol=10 * atol)


@pytest.mark.parametrize("policy", ["mixed_bfloat16"], indirect=True)
def test_losses_of_layers_in_16_bits_are_added_in_float32(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(*_: Any) -> Any:
        tensor = keras.Input((3,), name="pixels")
        penalized = keras.layers.ActivityRegularization(l1=1.0)(tensor)
        return keras.Model(tensor, keras.layers.Dense(1, dtype="float32")(penalized))

    network = build_by(create, monkeypatch)
    network({"pixels": np.ones((100, 3), np.float32)}, training=True)
    [loss] = network.losses
    assert loss.dtype == tf.float32


def _create_sequential(*_: Any) -> Any:
    return keras.Sequential([keras.Input((4,), name="words", dtype="int64"), keras.layers.Dense(1)])


def _create_nested(*_: Any) -> Any:
    tensors = keras3.input_layers(INPUTS)
    tensor = keras.layers.Concatenate()([tensors["pixels"], keras.layers.Reshape((1,))(tensors["age"])])
    return keras.Model([tensors["pixels"], tensors["age"]], _create_frozen()(tensor))


def _create_frozen() -> Any:
    inner = keras.Input((4,))
    model = keras.Model(inner, keras.layers.Dense(1)(inner))
    model.trainable = False
    return model


@pytest.mark.parametrize(("create", "trained"), [(_create_sequential, 2), (_create_nested, 0), (create_model, 8)])
def test_prediction_is_that_of_predict(
    create: Callable[..., Any], trained: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = []

    def build_model(*arguments: Any) -> Any:
        models.append(create(*arguments))
        return models[-1]

    network, rows = build_by(build_model, monkeypatch), create_rows(20)
    [model] = models
    assert sorted(tensor.name for tensor in network.inputs) == sorted(tensor.name for tensor in model.inputs)
    assert (len(network.trainable_variables), len(network.variables)) == (trained, len(model.variables))
    features = {tensor.name: rows[tensor.name] for tensor in model.inputs}
    np.testing.assert_allclose(network(features, training=False), model.predict(features, verbose=0), atol=1e-6)


def test_names_and_policy_do_not_depend_on_earlier_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        first, second = (build_by(create_model, monkeypatch) for _ in range(2))
        assert keras.config.dtype_policy().name == "mixed_float16"
    finally:
        keras.config.set_dtype_policy("float32")
    names = [variable.name for variable in first.variables]
    assert names == [variable.name for variable in second.variables]
    assert "dense_1/kernel:0" in names, "the optimizer decays variables with this name"


class _Noise(keras.layers.Layer):  # type: ignore[misc]
    """A user's layer with layers inside, whose variables have the same names, and with random numbers."""

    def __init__(self) -> None:
        super().__init__(name="noise")
        self.layers = [keras.layers.Dense(3), keras.layers.Dense(3)]
        self.table = keras.layers.Embedding(5, 3)
        self.seed = keras.random.SeedGenerator(5)

    def call(self, tensors: Any, training: bool = False) -> Any:
        output = self.layers[1](self.layers[0](tensors["pixels"])) + self.table(tensors["plan"])
        return output + keras.random.normal((3,), seed=self.seed) if training else output


def test_layers_inside_a_users_layer_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    models = []

    def create(*_: Any) -> Any:
        tensors = {name: tensor for name, tensor in keras3.input_layers(INPUTS).items() if name in ("pixels", "plan")}
        models.append(keras.Model(tensors, keras.layers.Dense(1)(_Noise()(tensors))))
        return models[-1]

    network, rows = build_by(create, monkeypatch), create_rows(9)
    features = {name: rows[name] for name in ("pixels", "plan")}
    np.testing.assert_allclose(network(features, training=False), models[0].predict(features, verbose=0), atol=1e-6)
    first, second = (network(features, training=True).numpy() for _ in range(2))
    assert (np.abs(first - second) > 1e-3).all(), "every call draws other numbers"
    [state] = network.non_trainable_variables
    assert state.numpy().tolist() == [5, 2]
    weights = warm_start.list_weights(network)
    assert len({weight.name for weight in weights}) == len(network.variables) == 8
    assert [weight.variable.shape for weight in weights if weight.features == ()] == [(5, 3)]


@pytest.mark.extended
def test_replicas_average_and_draw_on_their_own(tmp_path: Path) -> None:
    momentum, steps = 0.75, 3
    batches = np.random.default_rng(0).normal(size=(steps, 2, 6, 5)).astype(np.float32)
    result = in_child(tmp_path / "log", keras3_replicas.train, batches.tolist(), momentum)
    averages = {"mean": np.zeros((2, 5)), "variance": np.ones((2, 5))}
    for batch in batches.astype(np.float64):
        for name, statistics in (("mean", batch.mean(axis=1)), ("variance", batch.var(axis=1))):
            averages[name] = momentum * averages[name] + (1 - momentum) * statistics
    for name, values in averages.items():
        np.testing.assert_allclose(result[name], values.mean(axis=0), atol=1e-5)
    first, second = result["dropped"]
    assert 0 < first.mean() < 1
    assert 0 < second.mean() < 1
    assert (first != second).any()
    assert result["seeds"] == [[1, steps]] * 2


def _create_without_inputs(*_: Any) -> Any:
    return keras.Sequential([keras.layers.Dense(1)])


def _create_two_outputs(*_: Any) -> Any:
    tensor = keras.Input((1,), name="age")
    return keras.Model({"age": tensor}, [keras.layers.Dense(1)(tensor), keras.layers.Dense(1)(tensor)])


def _create_on(name: str, shape: tuple[int, ...], **last: Any) -> Callable[..., Any]:
    def create(*_: Any) -> Any:
        tensor = keras.Input(shape, name=name)
        return keras.Model({name: tensor}, keras.layers.Dense(1, **last)(tensor))

    return create


@pytest.mark.parametrize(
    ("create", "message"),
    [
        pytest.param(_create_without_inputs, r"create it with keras\.Model\(inputs, outputs\)", id="no-inputs"),
        pytest.param(_create_two_outputs, r"its output has shape \[\(None, 1\), \(None, 1\)\]", id="outputs"),
        pytest.param(_create_on("pixel", (3,)), "'pixel' is not a feature; did you mean 'pixels'", id="no-feature"),
        pytest.param(_create_on("pixels", (4,)), r"\[None, 4\], and the feature \[None, 3\]", id="shape"),
        pytest.param(_create_on("words", (4,)), "'words' is float32, and the feature is int64 ids", id="ids"),
        pytest.param(_create_on("age", (1,), dtype="mixed_float16"), "its output is float16", id="16-bits"),
        pytest.param(_create_on("age", (1,), dtype="float64"), "its output is float64", id="64-bits"),
    ],
)
def test_model_of_another_signature_is_refused(
    create: Callable[..., Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=rf"theirs.build: expected a tf_keras.Model or a keras.Model .*{message}"):
        build_by(create, monkeypatch)


def test_mesh_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network = build_by(create_model, monkeypatch)
    mesh = create_mesh(TrainingConfig.model_validate({"strategy": {"kind": "mesh", "data": 2}}).strategy, 0)
    with pytest.raises(InputError, match="expected a tf_keras network for a mesh, received a Keras 3 model"):
        MeshCopies(mesh, lambda _: pytest.fail("no copy is created"), network, tf_keras.optimizers.SGD())


@pytest.mark.slow
def test_backend_that_is_not_installed_is_refused() -> None:
    program = """
import types, sys
sys.modules["theirs"] = types.SimpleNamespace(build=lambda inputs, outputs: None, __file__="theirs.py")
from components.base.errors import InputError
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
try:
    build(ModelConfig(build="theirs.build"), Inputs({}), 1)
except InputError as error:
    print(error)
"""
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "model.build: expected Keras with the backend tensorflow, received jax" in process.stdout
    assert "set KERAS_BACKEND=tensorflow" in process.stdout


def test_other_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(InputError, match="expected Keras with the backend tensorflow, received torch"):
        build_by(create_model, monkeypatch)
