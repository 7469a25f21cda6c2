"""Tests that one TensorFlow call can run several steps, and that XLA can compile a step, which TPUs require."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from components.trainer import checkpoint
from components.trainer.config import TrainingConfig
from components.trainer.gradients import create_gradient_function
from components.trainer.optimizer import create_optimizer
from components.trainer.steps import Stop
from components.trainer.strategy import Distribution
from components.trainer.training_loop import Folders, Learner, SynchronousSteps, TrainingLoop, _create_replica_step

INPUTS = Inputs({"a": Dense(), "words": Ids(40, values=3), "x": Ids(5)})
ROWS = 8


class Numbers:
    """An input pipeline whose batches are the numbers 0, 1, 2 and so on."""

    def dataset(self, shard: Any) -> tf.data.Dataset:
        return tf.data.Dataset.counter(tf.constant(shard.start, tf.int64))


class Crossentropy:
    """A prediction head with the crossentropy of a binary label."""

    def losses(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.nn.sigmoid_cross_entropy_with_logits(label, logits)


def test_steps_of_one_call_use_consecutive_batches() -> None:
    seen = tf.Variable(0, dtype=tf.int64)

    def step(number: tf.Tensor) -> tf.Tensor:
        seen.assign(seen * 10 + number)
        return tf.cast(number, tf.float32)

    iterations: Any = tf.Variable(2, dtype=tf.int64)
    distribution = Distribution(tf.distribute.get_strategy())
    steps = SynchronousSteps(distribution, step, Numbers(), iterations, 3)  # type: ignore[arg-type]
    assert steps.run(3, lambda: Stop(preempted=True)) == (3.0, Stop(preempted=True))
    assert steps.run(2, Stop) == (5.5, Stop())
    assert int(seen) == 23456
    assert steps._execute.experimental_get_tracing_count() == 1


@pytest.mark.both_lines
@pytest.mark.extended
@pytest.mark.parametrize("rate", [None, 0.05], ids=["adam", "adagrad"])
def test_step_compiled_by_xla_gives_the_same_weights(rate: float | None) -> None:
    random = np.random.default_rng(0)
    features = {
        "a": tf.constant(random.normal(size=ROWS).astype(np.float32)),
        "words": tf.constant(random.integers(0, 40, (ROWS, 3))),
        "x": tf.constant(random.integers(0, 5, ROWS)),
    }
    batch = (features, tf.constant(random.integers(0, 2, (ROWS, 1)).astype(np.float32)))
    weights = []
    for compile_by_xla in (False, True):
        tf_keras.utils.set_random_seed(1)
        network = build(ModelConfig(kind="wide_deep", hidden=(8,)), INPUTS, 1)
        optimizer = create_optimizer(0.01, table_learning_rate=rate)
        optimizer.build(network.trainable_variables)
        compute = create_gradient_function(network, optimizer, Crossentropy(), 1)  # type: ignore[arg-type]
        step = _create_replica_step(network, optimizer, compute)
        compiled = tf.function(step, autograph=False, jit_compile=compile_by_xla)
        for _ in range(3):
            compiled(batch)
        weights.append(network.get_weights())
    for plain, by_xla in zip(*weights, strict=True):
        np.testing.assert_allclose(by_xla, plain, rtol=1e-3, atol=1e-5)


@pytest.mark.both_lines
def test_pretrained_network_is_frozen_during_the_first_steps() -> None:
    inner = tf_keras.Sequential([tf_keras.layers.Input((4,)), tf_keras.layers.Dense(3)], name="application_photo")
    tensor = tf_keras.layers.Input((4,), name="photo")
    network = tf_keras.Model({"photo": tensor}, tf_keras.layers.Dense(1)(inner(tensor)))
    frozen = frozen_variables(network)
    optimizer = create_optimizer(0.01)
    optimizer.build(network.trainable_variables)
    compute = create_gradient_function(network, optimizer, Crossentropy(), 1, frozen_steps=2)  # type: ignore[arg-type]
    step = tf.function(_create_replica_step(network, optimizer, compute), autograph=False)
    batch = (
        {"photo": tf.random.stateless_uniform([4, 4], [0, 1])},
        tf.constant([[0.0], [1.0], [0.0], [1.0]]),
    )
    changes = []
    for _ in range(3):
        before = [variable.numpy() for variable in network.trainable_variables]
        step(batch)
        pairs = zip(network.trainable_variables, before, strict=True)
        changes.append({id(current) in frozen for current, old in pairs if (current.numpy() != old).any()})
    assert changes == [{False}, {False}, {False, True}]


class Rows:
    """An input pipeline with always the same batch."""

    def dataset(self, shard: Any) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(({"x": tf.ones([4, 1])}, tf.ones([4, 1]))).repeat()


def build_network() -> tf_keras.Model:
    tensor = tf_keras.layers.Input((1,), name="x")
    return tf_keras.Model({"x": tensor}, tf_keras.layers.Dense(1)(tensor))


def make_loop(folder: Path, on_checkpoint: Callable[[int, tf_keras.Model], object], **config: Any) -> TrainingLoop:
    return TrainingLoop(
        config=TrainingConfig.model_validate(config),
        distribution=Distribution(tf.distribute.get_strategy()),
        learner=Learner(build_network, Crossentropy()),  # type: ignore[arg-type]
        input_pipeline=Rows(),  # type: ignore[arg-type]
        folders=Folders(str(folder / "checkpoints"), None, str(folder / "events")),
        on_checkpoint=on_checkpoint,
    )


OPTIMIZERS: list[dict[str, Any]] = [
    {"optimizer": {"kind": "sgd", "nesterov": True}, "learning_rate": 0.1},
    {"optimizer": {"kind": "adagrad", "clip_norm": 0.1}, "schedule": {"kind": "constant"}, "learning_rate": 0.1},
    {"optimizer": {"kind": "lion", "accumulate": 2}, "schedule": {"kind": "polynomial", "warm_up_steps": 3}},
    {"optimizer": {"kind": "ftrl"}, "schedule": {"kind": "piecewise", "shares": {3: 0.1}}, "learning_rate": 0.1},
    {"optimizer": {"kind": "adamw"}, "weight_decay": 0.1, "schedule": {"kind": "exponential", "every_steps": 2}},
]


@pytest.mark.both_lines
@pytest.mark.parametrize("config", OPTIMIZERS, ids=lambda config: config["optimizer"]["kind"])
def test_restart_continues_the_steps_of_an_optimizer(config: dict[str, Any], tmp_path: Path) -> None:
    weights: dict[str, list[Any]] = {"whole": [], "restarted": []}

    def run(name: str, stops_at: int | None = None) -> None:
        tf_keras.utils.set_random_seed(1)

        def on_checkpoint(step: int, network: tf_keras.Model) -> bool:
            weights[name].append([values.numpy() for values in network.variables])
            return step == stops_at

        checkpoint_config = {"checkpoint": {"every_steps": 2}}
        make_loop(tmp_path / name, on_checkpoint, steps=6, batch_size=4, **checkpoint_config, **config).run()

    run("whole")
    run("restarted", stops_at=2)
    assert len(weights["restarted"]) == 1
    run("restarted")
    # A restart calls on_checkpoint for the restored step, too.
    assert len(weights["whole"]) == 3
    for expected, actual in zip(weights["whole"][1:], weights["restarted"][2:], strict=True):
        for whole, restarted in zip(expected, actual, strict=True):
            np.testing.assert_allclose(restarted, whole, rtol=1e-6, atol=1e-7)
    moved = [np.abs(last - first).max() for first, last in zip(weights["whole"][0], weights["whole"][2], strict=True)]
    assert min(moved) > 1e-6


def test_training_pauses_with_a_checkpoint_and_continues_the_schedule(tmp_path: Path) -> None:
    weights: dict[str, dict[int, Any]] = {"whole": {}, "paused": {}}

    def run(name: str, pause_at: int | None = None) -> list[int]:
        steps = []
        tf_keras.utils.set_random_seed(1)

        def on_checkpoint(step: int, network: tf_keras.Model) -> None:
            steps.append(step)
            weights[name][step] = [values.numpy() for values in network.variables]

        config = {"steps": 9, "batch_size": 4, "checkpoint": {"every_steps": 4}, "learning_rate": 0.1}
        replace(make_loop(tmp_path / name, on_checkpoint, **config), pause_at=pause_at).run()
        return steps

    assert run("whole") == [4, 8, 9]
    assert run("paused", 3) == [3]
    assert run("paused", 3) == [3], "it has reached the step already"
    assert run("paused", 5) == [3, 4, 5]
    assert run("paused", 20) == [5, 8, 9], "the training has only 9 steps"
    for expected, actual in zip(weights["whole"][9], weights["paused"][9], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("error", [TypeError("a bfloat16 variable"), tf.errors.UnimplementedError(None, None, "Cast")])
def test_network_that_cannot_be_built_is_an_error_without_a_restart(error: Exception, tmp_path: Path) -> None:
    def fail() -> tf_keras.Model:
        raise error

    loop = replace(make_loop(tmp_path, lambda *_: None), learner=Learner(fail, Crossentropy()))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a network that can be built, received ") as raised:
        loop.run()
    assert "training.precision" in raised.value.remedy


def test_training_ends_with_a_checkpoint_when_its_time_is_over(tmp_path: Path) -> None:
    checkpoints: list[int] = []
    config: dict[str, Any] = {"steps": 1_000_000, "max_minutes": 1e-6, "checkpoint": {"every_steps": 500_000}}
    loop = make_loop(tmp_path, lambda step, network: checkpoints.append(step), **config)
    steps_per_call = loop.config.steps_per_execution
    loop.run()
    assert checkpoints == [steps_per_call]
    assert checkpoint.steps(str(tmp_path / "checkpoints")) == checkpoints
    # A restart gets the time again.
    loop.run()
    assert checkpoints[1:] == [steps_per_call, 2 * steps_per_call]
