"""Measure the time of a step on two logical devices that compute stages of a network, per number of micro-batches.

python -m benchmarks.mesh_stages [--rounds 20]

Dense layers need free cores to compute at the same time; every operation has one thread. Layers that wait for a time in
proportion to their rows, in the forward pass, show the overlap also on a busy machine.
"""

from __future__ import annotations

import argparse
import functools
import resource
import time
from typing import Any

from benchmarks import measure

_UNITS, _LAYERS, _ROWS = 768, 6, 512
_PARTS = (1, 2, 4, 8)
_WAIT_SECONDS = 0.1
"""Time that a waiting layer takes for all rows."""
_DEVICES = ("CPU:0", "CPU:1")


def main() -> None:
    """Measure, print the table and write it to results/."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(4)
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * len(_DEVICES))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    steps = {
        f"{kind}, micro_batches {parts}": step
        for kind in ("dense", "waiting")
        for parts, step in _create_steps(kind == "waiting").items()
    }
    losses = {name: float(step()[0]) for name, step in steps.items()}

    def run(name: str, _round: int) -> measure.Measurement:
        started, cpu_started = time.perf_counter(), time.process_time()
        steps[name]().numpy()
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
        return measure.Measurement(wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

    sides = {name: functools.partial(run, name) for name in steps}
    measured = measure.in_turns(sides, rounds)
    facts: measure.Facts = {"layers": [_UNITS] * _LAYERS, "rows": _ROWS}
    facts |= {f"{name}, the loss": f"{loss:.6f}" for name, loss in losses.items()}
    print(measure.record("mesh_stages", f"python -m benchmarks.mesh_stages --rounds {rounds}", measured, facts))


def _create_steps(waits: bool) -> dict[int, Any]:
    """Return number of micro-batches → function that computes the loss of a batch, and the sums of all gradients."""
    import tensorflow as tf
    import tf_keras

    from components.models.column_sharding import on_devices
    from components.models.stages import assign_stages, compute_gradients, divide, list_variable_stages

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def wait(rows: tf.Tensor) -> Any:
        waited = tf.numpy_function(_wait, [rows], rows.dtype, stateful=False)
        return tf.ensure_shape(waited, rows.shape), lambda upstream: upstream

    def build() -> tf_keras.Model:
        tf_keras.backend.reset_uids()
        features = below = tf_keras.layers.Input((_UNITS,), name="x")
        for depth in range(_LAYERS):
            name = f"hidden_{depth}"
            if waits:
                below = tf_keras.layers.Lambda(wait, name=name)(below)
            else:
                below = tf_keras.layers.Dense(_UNITS, activation="relu", name=name)(below)
        return tf_keras.Model({"x": features}, tf_keras.layers.Dense(1, name="logits")(below))

    whole = build()
    layer_stages = assign_stages(whole, {f"hidden_{depth}": 1 for depth in range(_LAYERS // 2, _LAYERS)})
    with on_devices([[device] for device in _DEVICES], list_variable_stages(whole, layer_stages)):
        network = build()
    for variable, values in zip(network.variables, whole.variables, strict=True):
        variable.assign(values)
    stages = divide(network, layer_stages, _DEVICES)
    features, target = tf.random.normal([_ROWS, _UNITS], seed=1), tf.random.uniform([_ROWS, 1], seed=2)

    def create(parts: int) -> Any:
        def step() -> tf.Tensor:
            loss, gradients = compute_gradients(
                network, stages, {"x": features}, lambda output: tf.reduce_mean(tf.square(output - target)), parts
            )
            # TensorFlow would not compute gradients that nothing reads.
            return tf.stack([loss, *(tf.reduce_sum(gradient) for gradient in gradients)])

        return tf.function(step, autograph=False)

    return {parts: create(parts) for parts in _PARTS}


def _wait(rows: Any) -> Any:
    time.sleep(_WAIT_SECONDS * len(rows) / _ROWS)
    return rows


if __name__ == "__main__":
    main()
