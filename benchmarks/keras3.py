"""Measure a training step of the project's mlp in tf_keras, and of the same network in Keras 3.

python -m benchmarks.keras3 [--rounds 5] [--steps 50]

The batches are random and stay in memory: 20 numbers and 10 columns of IDs. Both networks begin with the same weights,
and the benchmark fails if their losses differ. The Keras 3 network reads its table once with `layers.Embedding`, which
reads the whole table in every step, and once with `tf.gather`, which reads the rows of the batch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks import measure
from components.features.feature_spec import Dense, Ids
from components.models import keras3
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.trainer.gradients import create_gradient_function
from components.trainer.optimizer import create_optimizer

_CARDINALITIES = (1_000, 100_000)
_BATCH = 1024
_COMPARED_STEPS = 20
_CONFIG = ModelConfig(kind="mlp", hidden=(128, 64))


class _Crossentropy:
    def losses(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.nn.sigmoid_cross_entropy_with_logits(label, logits)[:, 0]


class GatheredRows(keras.layers.Layer):  # type: ignore[misc]
    """A table of IDs that reads only the rows of a batch.

    `keras.layers.Embedding` reads its variable before it selects rows. Because the optimizer writes to the variable in
    place, TensorFlow copies the whole table for such a read.

    Args:
      rows: Number of rows.
      width: Width of a row.
    """

    def __init__(self, rows: int, width: int, **options: Any) -> None:
        super().__init__(**options)
        self.rows = self.add_weight((rows, width), "uniform", name="rows")

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the rows; shape [batch, columns, width]."""
        return tf.gather(self.rows.value, ids)

    def compute_output_spec(self, ids: Any) -> Any:
        """Describe the output; Keras cannot derive it from operations of TensorFlow."""
        return keras.KerasTensor((*ids.shape, self.rows.shape[1]), dtype=self.compute_dtype)


def build_mlp(inputs: Inputs, width: int, reads_rows: bool) -> tf_keras.Model:
    """Build the mlp of `components.models.tabular` in Keras 3, for numbers and IDs of one value.

    Args:
      inputs: The features.
      width: Width of the table.
      reads_rows: Whether a step reads only the rows of the batch from the table.
    """
    layers = keras.layers
    with keras3.building():
        tensors = keras3.input_layers(inputs)
        numbers = layers.Concatenate()([layers.Reshape((1,))(tensors[name]) for name in inputs.dense])
        cardinalities = [ids.cardinality for ids in inputs.ids.values()]
        starts = np.cumsum([0, *cardinalities[:-1]])
        ids = layers.Concatenate()(
            [layers.Reshape((1,))(tensors[name]) + start for name, start in zip(inputs.ids, starts, strict=True)]
        )
        table = GatheredRows if reads_rows else layers.Embedding
        vectors = layers.Flatten()(table(sum(cardinalities), width)(ids))
        hidden = layers.Concatenate()([numbers, vectors])
        for units in _CONFIG.hidden:
            hidden = layers.Dense(units, "relu")(hidden)
        return keras3.wrap(keras.Model(tensors, layers.Dense(1, dtype="float32")(hidden)))


def main() -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=measure.ROUNDS)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    measured: dict[str, list[measure.Measurement]] = {}
    facts: measure.Facts = {"rows of a batch": _BATCH}
    for cardinality in _CARDINALITIES:
        inputs = Inputs({f"n{n}": Dense() for n in range(20)} | {f"c{n}": Ids(cardinality) for n in range(10)})
        sides, losses = {}, {}
        for side, step, loss, seconds in _create_sides(inputs):
            name = f"{cardinality:,} ids per column, {side}"
            sides[name], losses[name] = _measure_steps(step, options.steps), loss
            facts[f"{name}: CPU-seconds of the first step"] = round(seconds, 1)
        expected, *other_losses = losses.values()
        for loss in other_losses:
            np.testing.assert_allclose(loss, expected, rtol=1e-4)
        facts[f"{cardinality:,} ids: loss after {_COMPARED_STEPS} steps"] = f"{expected:.5f}"
        runs = measure.in_turns(sides, options.rounds, warm_up=1)
        first = next(iter(runs.values()))
        for name, of_side in runs.items():
            facts[f"{name}: CPU-ms of a step"] = measure.Spread.of(run.cpu / options.steps * 1e3 for run in of_side)
            facts[f"{name}: CPU / tf_keras"] = measure.Spread.of(
                run.cpu / reference.cpu for run, reference in zip(of_side, first, strict=True)
            )
        measured |= runs
    command = f"python -m benchmarks.keras3 --rounds {options.rounds}"
    print(measure.record("keras3", command, measured, facts))


def _create_sides(inputs: Inputs) -> list[tuple[str, Callable[[], Any], float, float]]:
    """Return the networks: name, a function that takes a step, loss after the compared steps, CPU of the first step."""
    batch = _create_batch(inputs)
    ours = build(_CONFIG, inputs, 1)
    weights = ours.get_weights()
    width = weights[0].shape[1]
    networks = {
        "tf_keras": ours,
        "Keras 3, Embedding": build_mlp(inputs, width, reads_rows=False),
        "Keras 3, gather": build_mlp(inputs, width, reads_rows=True),
    }
    sides = []
    for name, network in networks.items():
        network.set_weights(weights)
        step, started = _create_step(network, batch), time.process_time()
        step().numpy()
        seconds = time.process_time() - started
        for _ in range(_COMPARED_STEPS - 1):
            loss = step()
        sides.append((name, step, float(loss), seconds))
    return sides


def _create_batch(inputs: Inputs) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    random = np.random.default_rng(0)
    features = {name: tf.constant(random.integers(0, ids.cardinality, _BATCH)) for name, ids in inputs.ids.items()} | {
        name: tf.constant(random.normal(size=_BATCH).astype(np.float32)) for name in inputs.dense
    }
    return features, tf.constant(random.integers(0, 2, (_BATCH, 1)).astype(np.float32))


def _create_step(network: tf_keras.Model, batch: Any) -> Callable[[], tf.Tensor]:
    optimizer = create_optimizer(1e-3)
    optimizer.build(network.trainable_variables)
    compute: Any = create_gradient_function(network, optimizer, _Crossentropy(), 1)  # type: ignore[arg-type]
    compute = tf.autograph.experimental.do_not_convert(compute)

    def take_step() -> tf.Tensor:
        loss, gradients = compute(batch)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    return tf.function(take_step, autograph=False)  # type: ignore[no-any-return]


def _measure_steps(step: Callable[[], Any], steps: int) -> Callable[[int], measure.Measurement]:
    def run(_number: int) -> measure.Measurement:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            loss = step()
        loss.numpy()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return measure.Measurement(wall, cpu, 0.0)

    return run


if __name__ == "__main__":
    tf_keras.utils.set_random_seed(1)
    main()
