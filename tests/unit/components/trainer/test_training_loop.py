"""Tests that one TensorFlow call can run several steps, and that XLA can compile a step, which TPUs require."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features.feature_spec import Dense, Ids
from components.models.build import build
from components.models.config import ModelConfig
from components.models.images import frozen_variables
from components.models.inputs import Inputs
from components.trainer import checkpoint
from components.trainer.config import TrainingConfig
from components.trainer.optimizer import adam
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
        optimizer = adam(0.01, table_learning_rate=rate)
        optimizer.build(network.trainable_variables)
        learner = Learner(tf_keras.Model, Crossentropy())  # type: ignore[arg-type]
        step = _create_replica_step(network, optimizer, learner, 1)
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
    optimizer = adam(0.01)
    optimizer.build(network.trainable_variables)
    learner = Learner(lambda: network, Crossentropy(), frozen_steps=2)  # type: ignore[arg-type]
    step = tf.function(_create_replica_step(network, optimizer, learner, 1), autograph=False)
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


def test_training_ends_with_a_checkpoint_when_its_time_is_over(tmp_path: Path) -> None:
    def build_network() -> tf_keras.Model:
        tensor = tf_keras.layers.Input((1,), name="x")
        return tf_keras.Model({"x": tensor}, tf_keras.layers.Dense(1)(tensor))

    checkpoints: list[int] = []
    config = TrainingConfig.model_validate(
        {"steps": 1_000_000, "max_minutes": 1e-6, "checkpoint": {"every_steps": 500_000}}
    )
    loop = TrainingLoop(
        config=config,
        distribution=Distribution(tf.distribute.get_strategy()),
        learner=Learner(build_network, Crossentropy()),  # type: ignore[arg-type]
        input_pipeline=Rows(),  # type: ignore[arg-type]
        folders=Folders(str(tmp_path / "checkpoints"), None, str(tmp_path / "events")),
        on_checkpoint=lambda step, network: checkpoints.append(step),
    )
    loop.run()
    assert checkpoints == [config.steps_per_execution]
    assert checkpoint.steps(str(tmp_path / "checkpoints")) == checkpoints
    # A restart gets the time again.
    loop.run()
    assert checkpoints[1:] == [config.steps_per_execution, 2 * config.steps_per_execution]
