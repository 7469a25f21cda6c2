"""Tests of training on a mesh: steps equal training on one device, and any strategy can restore the checkpoints."""

from __future__ import annotations

import functools
from collections.abc import Sequence
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
from components.models.inputs import Inputs
from components.models.stages import Stage, assign_stages, compute_gradients, divide, list_variable_stages
from components.trainer.checkpoint import Checkpoints
from components.trainer.config import StrategyConfig
from components.trainer.mesh import Mesh, MeshCopies, Replica, create_mesh
from components.trainer.optimizer import create_optimizer
from components.trainer.optimizer_config import OptimizerConfig
from tests.support.data.tolerances import float32_sum

INPUTS = Inputs({"a": Dense(), "b": Dense(6), "words": Ids(40, values=3), "x": Ids(5), "y": Ids(1000)})
IMAGES = Inputs({"photo": Dense(4 * 4 * 3, image=(4, 4, 3)), "x": Ids(5)})
ROWS = 32
LOSSES = float32_sum(ROWS)
"""Tolerance of the mean loss over the rows of a batch. The error that earlier steps add is smaller."""
HERE = Mesh((("CPU:0",) * 2,) * 2)
"""A mesh of two by two devices, all of them the same CPU."""
ADAM = OptimizerConfig()


def test_devices_are_rows_of_the_mesh() -> None:
    config = StrategyConfig(kind="mesh", data=2, model=3)
    assert create_mesh(config, 8).devices == (("GPU:0", "GPU:1", "GPU:2"), ("GPU:3", "GPU:4", "GPU:5"))
    assert create_mesh(config, 0).devices == (("CPU:0", "CPU:1", "CPU:2"), ("CPU:3", "CPU:4", "CPU:5"))


def test_mesh_with_more_devices_than_gpus_is_an_error() -> None:
    message = "expected at most as many devices as GPUs, 3, received data 2 times model 2"
    with pytest.raises(InputError, match=message) as raised:
        create_mesh(StrategyConfig(kind="mesh", data=2, model=2), 3)
    assert "choose a smaller mesh" in raised.value.remedy


def test_stages_have_groups_of_devices_and_workers_with_a_mesh_no_gpus() -> None:
    config = StrategyConfig(kind="mesh", data=2, model=2, place={"head": 1})
    mesh = create_mesh(config, 8)
    assert mesh.list_stages(1) == [("GPU:4", "GPU:5"), ("GPU:6", "GPU:7")]
    workers = StrategyConfig(kind="multi_worker", model=2)
    assert create_mesh(workers, 0).devices == (("CPU:0", "CPU:1"),)
    with pytest.raises(InputError, match="expected no GPUs for workers with a mesh, received 4") as raised:
        create_mesh(workers, 4)
    assert raised.value.remedy.startswith("choose kind mesh")


def inputs_of(kind: str) -> Inputs:
    return IMAGES if kind == "cnn" else INPUTS


def batch(number: int, kind: str = "wide_deep") -> Any:
    random = np.random.default_rng(number)
    features: dict[str, Any] = {
        name: tf.constant(random.integers(0, ids.cardinality, ROWS if ids.values == 1 else (ROWS, ids.values)))
        for name, ids in inputs_of(kind).ids.items()
    }
    for name, numbers in inputs_of(kind).dense.items():
        shape = ROWS if numbers.width == 1 else (ROWS, numbers.width)
        features[name] = tf.constant(random.normal(size=shape).astype(np.float32))
    return features, tf.constant(random.integers(0, 2, (ROWS, 1)).astype(np.float32))


DEEP = {"hidden": (8, 4), "normalisation": "layer"}
MODELS = {
    kind: ModelConfig(kind=kind, **options)
    for kind, options in {
        **dict.fromkeys(("wide_deep", "dlrm", "tabm", "mlp", "dcn_v2"), DEEP),
        "linear": {},
        "cnn": {"hidden": (8,), "filters": (4, 8)},
        "two_tower": {"hidden": (8, 4), "item": ("x",)},
    }.items()
}


class Trained:
    """A network with its optimizer, trained on one device."""

    def __init__(
        self,
        kind: str,
        replicas: int = 1,
        placed: bool = False,
        rate: float | None = None,
        config: OptimizerConfig = ADAM,
    ) -> None:
        tf_keras.backend.reset_uids()
        self.network = build(MODELS[kind], inputs_of(kind), 10 if kind == "two_tower" else 1)
        schedule = tf_keras.optimizers.schedules.CosineDecay(0.01, 20)
        self.optimizer = create_optimizer(schedule, 0.01, rate, ROWS, placed, config)
        if not placed:
            self.optimizer.build(self.network.trainable_variables)
        self.replicas = replicas

    def loss_and_gradients(self, rows: Any, stages: Sequence[Stage] = (), micro_batches: int = 1) -> Any:
        features, label = rows

        def compute_loss(output: Any) -> Any:
            logits = tf.reshape(output, [label.shape[0], -1])
            return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(tf.broadcast_to(label, logits.shape), logits))

        if stages:
            return compute_gradients(self.network, stages, features, compute_loss, micro_batches, 1 / self.replicas)
        with tf.GradientTape() as tape:
            loss = compute_loss(self.network(features, training=True)) / self.replicas
        return loss, tape.gradient(loss, self.network.trainable_variables)

    def step(self, rows: Any) -> Any:
        loss, gradients = self.loss_and_gradients(rows)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_variables, strict=True))
        return loss

    def state(self) -> dict[str, Any]:
        """Return weights, moments, step and learning rate by name. The name of a moment contains its weight's name."""
        return {variable.name: variable.numpy() for variable in (*self.network.variables, *self.optimizer.variables)}


def compile_step(step: Any) -> Any:
    """Return the step as a graph."""
    # Without do_not_convert, AutoGraph spends seconds on converting tf_keras, with the same result.
    return tf.function(tf.autograph.experimental.do_not_convert(step), autograph=False)


def take(step: Any, first: int, last: int, kind: str = "wide_deep") -> list[float]:
    """Run the steps with the numbers from `first` to `last` - 1, and return their losses.

    Most callers do not compile the step, because tracing a graph takes longer than a few eager steps.
    """
    return [float(step(batch(number, kind))) for number in range(first, last)]


def copies(
    whole: Trained,
    kind: str,
    devices: Mesh = HERE,
    rate: float | None = None,
    config: OptimizerConfig = ADAM,
    sharded: bool = False,
    place: dict[str, int] | None = None,
    micro_batches: int = 1,
) -> MeshCopies:
    stages = assign_stages(whole.network, place) if place else {}

    def replica(names: Sequence[str]) -> Replica:
        trained = Trained(kind, devices.data, placed=True, rate=rate, config=config)
        parts = divide(trained.network, stages, names) if stages else []
        compute = functools.partial(trained.loss_and_gradients, stages=parts, micro_batches=micro_batches)
        return Replica(trained.network, trained.optimizer, compute)

    stage_of = list_variable_stages(whole.network, stages) if stages else None
    return MeshCopies(devices, replica, whole.network, whole.optimizer, sharded, stage_of)


def assert_equal(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=1e-3, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "rate", "optimizer"),
    [
        ("wide_deep", 0.05, "adam"),
        ("dcn_v2", None, "adam"),
        # Adam would divide the gradients of biases before a normalization by their size, which is the size of rounding.
        ("cnn", None, "sgd"),
        pytest.param("linear", None, "adam", marks=pytest.mark.slow),
        pytest.param("two_tower", None, "adam", marks=pytest.mark.slow),
        pytest.param("dlrm", None, "adam", marks=pytest.mark.slow),
        pytest.param("tabm", None, "adam", marks=pytest.mark.slow),
    ],
)
@pytest.mark.extended
def test_mesh_takes_the_same_steps_as_one_device(kind: str, rate: float | None, optimizer: str) -> None:
    tf_keras.utils.set_random_seed(1)
    config = OptimizerConfig(kind=optimizer)
    alone, together = (Trained(kind, rate=rate, config=config) for _ in range(2))
    for mesh_variable, single_variable in zip(together.network.variables, alone.network.variables, strict=True):
        mesh_variable.assign(single_variable)
    mesh_copies = copies(together, kind, rate=rate, config=config)
    # Training compiles steps into graphs. One kind suffices here, since tracing is slow.
    in_training = compile_step if kind == "wide_deep" else lambda step: step
    losses = take(in_training(alone.step), 0, 4, kind)
    LOSSES.assert_close(take(in_training(mesh_copies.step), 0, 4, kind), losses)
    mesh_copies.collect()
    mesh_copies.collect_progress()
    assert_equal(together.state(), alone.state())


@pytest.mark.extended
@pytest.mark.parametrize(
    ("kind", "place", "micro_batches", "devices"),
    [
        ("mlp", {"hidden_1/*": 1}, 4, Mesh((("CPU:0",) * 2,), 2)),
        # The tables are on the first stage. Each of the three stages has two devices, and there are two copies.
        ("dcn_v2", {"hidden_0*": 1, "cross_2": 2, "logits": 2}, 2, Mesh((("CPU:0",) * 6,) * 2, 3)),
        pytest.param("cnn", {"photo_1*": 1}, 2, Mesh((("CPU:0",) * 2,), 2), marks=pytest.mark.slow),
        pytest.param("two_tower", {"item_*": 1}, 4, Mesh((("CPU:0",) * 2,), 2), marks=pytest.mark.slow),
    ],
)
def test_stages_take_the_same_steps_as_one_device(
    kind: str, place: dict[str, int], micro_batches: int, devices: Mesh
) -> None:
    tf_keras.utils.set_random_seed(1)
    config = OptimizerConfig(kind="sgd")
    alone, together = (Trained(kind, config=config) for _ in range(2))
    for mesh_variable, single_variable in zip(together.network.variables, alone.network.variables, strict=True):
        mesh_variable.assign(single_variable)
    mesh_copies = copies(together, kind, devices, config=config, place=place, micro_batches=micro_batches)
    losses = take(alone.step, 0, 3, kind)
    LOSSES.assert_close(take(mesh_copies.step, 0, 3, kind), losses)
    mesh_copies.collect()
    mesh_copies.collect_progress()
    assert_equal(together.state(), alone.state())


def check_steps(config: OptimizerConfig, sharded: bool = False) -> tuple[MeshCopies, Trained]:
    """Check that a mesh takes the same steps as one device; return both."""
    tf_keras.utils.set_random_seed(1)
    alone, together = Trained("wide_deep", config=config), Trained("wide_deep", config=config)
    for mesh_variable, single_variable in zip(together.network.variables, alone.network.variables, strict=True):
        mesh_variable.assign(single_variable)
    mesh_copies = copies(together, "wide_deep", config=config, sharded=sharded)
    LOSSES.assert_close(take(mesh_copies.step, 0, 4), take(alone.step, 0, 4))
    mesh_copies.collect()
    mesh_copies.collect_progress()
    assert_equal(together.state(), alone.state())
    return mesh_copies, alone


@pytest.mark.extended
@pytest.mark.parametrize(
    "options",
    [{"kind": "sgd", "clip_norm": 0.05}, {"kind": "adagrad"}, {"kind": "lion"}, {"kind": "adam", "clip_value": 1e-3}],
    ids=lambda options: options["kind"],
)
def test_every_optimizer_takes_the_same_steps_on_a_mesh(options: dict[str, Any]) -> None:
    check_steps(OptimizerConfig(**options))


@pytest.mark.parametrize("options", [{}, {"kind": "sgd"}], ids=["adam", "sgd"])
def test_rows_that_update_a_part_of_the_weights_take_the_same_steps(options: dict[str, Any]) -> None:
    config = OptimizerConfig(**options)
    mesh_copies, alone = check_steps(config, sharded=True)
    first, second = (replica.network.variables for replica in mesh_copies._replicas)
    for variable, copy in zip(first, second, strict=True):
        np.testing.assert_array_equal(variable.numpy(), copy.numpy())
    size = sum(variable.shape.num_elements() * 4 for variable in alone.network.variables)
    # Both rows have the weights, and one of them the moments.
    assert mesh_copies.memory() == {"CPU:0": (2 * size, (config.copies - 1) * size)}
    shares = [len(replica.optimizer.variables) for replica in mesh_copies._replicas]
    assert min(shares) > 2


@pytest.mark.extended
def test_checkpoint_of_a_mesh_can_be_restored_on_one_device_or_another_mesh(tmp_path: Path) -> None:
    first = Trained("wide_deep")
    mesh_copies = copies(first, "wide_deep")
    take(mesh_copies.step, 0, 4)
    mesh_copies.collect()
    mesh_copies.collect_progress()
    Checkpoints(str(tmp_path), None, 1, network=first.network, optimizer=first.optimizer).save(4)
    losses = take(mesh_copies.step, 4, 8)

    def restore() -> Trained:
        trained = Trained("wide_deep")
        assert Checkpoints(str(tmp_path), None, 1, network=trained.network, optimizer=trained.optimizer).restore() == 4
        assert int(trained.optimizer.iterations) == 4
        return trained

    LOSSES.assert_close(take(restore().step, 4, 8), losses)
    other_mesh_copies = copies(restore(), "wide_deep", Mesh((("CPU:0",) * 4,)))
    LOSSES.assert_close(take(other_mesh_copies.step, 4, 8), losses)


def test_memory_counts_weights_and_moments() -> None:
    whole = Trained("mlp")
    size = sum(variable.shape.num_elements() * 4 for variable in whole.network.variables)
    assert copies(whole, "mlp").memory() == {"CPU:0": (2 * size, 4 * size)}
