"""Measure a training step with and without `training.jit_compile`, for several kinds of models.

python -m benchmarks.xla [--rounds 5] [--steps 50]

The batches are random and stay in memory: 20 numbers and 10 columns of IDs, or images of 32 by 32 pixels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks import measure
from components.features.feature_spec import Dense, Ids
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.trainer.gradients import create_gradient_function
from components.trainer.optimizer import create_optimizer

_TABLE = Inputs({f"n{n}": Dense() for n in range(20)} | {f"c{n}": Ids(1000) for n in range(10)})
_IMAGES = Inputs({"photo": Dense(32 * 32 * 3, image=(32, 32, 3))})
_KINDS = {"linear": _TABLE, "mlp": _TABLE, "wide_deep": _TABLE, "dcn_v2": _TABLE, "tabm": _TABLE, "cnn": _IMAGES}
_ROWS = {"cnn": 64}
_BATCH = 1024


class _Crossentropy:
    def losses(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        logits = tf.reshape(logits, [tf.shape(label)[0], -1])
        return tf.nn.sigmoid_cross_entropy_with_logits(tf.broadcast_to(label, tf.shape(logits)), logits)


def main() -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=measure.ROUNDS)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    measured: dict[str, list[measure.Measurement]] = {}
    facts: measure.Facts = {"rows of a batch": _BATCH, "rows of a batch of cnn": _ROWS["cnn"]}
    for kind, inputs in _KINDS.items():
        sides = {}
        for side, is_compiled in (("plain", False), ("xla", True)):
            step, seconds = _create_step(kind, inputs, is_compiled)
            facts[f"{kind}, {side}: seconds of the first step"] = round(seconds, 1)
            sides[f"{kind}, {side}"] = _measure_steps(step, options.steps)
        of_kind = measure.in_turns(sides, options.rounds, warm_up=1)
        plain, xla = of_kind.values()
        for side, runs in of_kind.items():
            facts[f"{side}: CPU-ms of a step"] = measure.Spread.of(run.cpu / options.steps * 1e3 for run in runs)
        facts[f"{kind}: CPU of plain / xla"] = measure.Spread.of(
            first.cpu / second.cpu for first, second in zip(plain, xla, strict=True)
        )
        measured |= of_kind
    print(measure.record("xla", f"python -m benchmarks.xla --rounds {options.rounds}", measured, facts))


def _create_step(kind: str, inputs: Inputs, is_compiled: bool) -> tuple[Callable[[], object], float]:
    """Return a function that takes a step, and the seconds of the first step."""
    random = np.random.default_rng(0)
    rows = _ROWS.get(kind, _BATCH)
    features: dict[str, Any] = {
        name: tf.constant(random.integers(0, ids.cardinality, rows)) for name, ids in inputs.ids.items()
    }
    for name, numbers in inputs.dense.items():
        shape = (rows,) if numbers.width == 1 else (rows, numbers.width)
        features[name] = tf.constant(random.normal(size=shape).astype(np.float32))
    batch = features, tf.constant(random.integers(0, 2, (rows, 1)).astype(np.float32))
    network = build(ModelConfig(kind=kind), inputs, 1)
    optimizer = create_optimizer(1e-3)
    optimizer.build(network.trainable_variables)
    compute: Any = create_gradient_function(network, optimizer, _Crossentropy(), 1)  # type: ignore[arg-type]
    compute = tf.autograph.experimental.do_not_convert(compute)
    if is_compiled:
        compute = tf.function(compute, autograph=False, jit_compile=True)

    def take_step() -> tf.Tensor:
        loss, gradients = compute(batch)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    step = tf.function(take_step, autograph=False)
    started = time.perf_counter()
    step().numpy()
    return step, time.perf_counter() - started


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
