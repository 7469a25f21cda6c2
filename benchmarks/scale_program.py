"""Take the measurements for the calculation of scale.py, each in a separate process.

python -m benchmarks.scale_program save|restore FOLDER
python -m benchmarks.scale_program steps FOLDER COUNT

- `save`, `restore`: write and read a checkpoint of a table of 1,000,000 x 32 and its two Adam moments.
- `steps`: take steps of the large DLRM on a batch in memory, and write the CPU-seconds of the steps to FOLDER. Wall
  time would depend on other programs of the machine.

The environment variables of our nodes must be set.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from benchmarks import measure
from benchmarks.scale import STEPS_FILE
from benchmarks.scale_model import BATCH, HIDDEN, NUMBERS, SMALL, TABLES, WIDTH
from components.features.feature_spec import Dense, Ids
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.trainer.optimizer import create_optimizer

_WARM_UP = 5


def _checkpoint() -> Any:
    random = tf.random.Generator.from_seed(0)
    parts = {name: tf.Variable(random.normal([SMALL, WIDTH])) for name in ("rows", "momentums", "velocities")}
    return tf.train.Checkpoint(**parts)


def _save(folder: Path) -> None:
    checkpoint = _checkpoint()

    def work() -> None:
        checkpoint.write(str(folder / "step"))
        for path in folder.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())

    measure.report(work)


def _restore(folder: Path) -> None:
    checkpoint = _checkpoint()
    for path in folder.iterdir():
        # The file was just written, so without this advice it would be read from memory.
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    measure.report(lambda: checkpoint.read(str(folder / "step")).assert_consumed())


def _steps(folder: Path, count: int) -> None:
    ids = {f"id_{number}": SMALL // TABLES for number in range(TABLES)}
    numbers = [f"number_{number}" for number in range(NUMBERS)]
    inputs = Inputs({name: Ids(rows) for name, rows in ids.items()} | {name: Dense() for name in numbers})
    network = build(ModelConfig(kind="dlrm", embedding=WIDTH, hidden=HIDDEN), inputs, 1)
    optimizer = create_optimizer(1e-3)
    optimizer.build(network.trainable_variables)
    loss = tf_keras.losses.BinaryCrossentropy(from_logits=True)
    random = tf.random.Generator.from_seed(0)
    batch = {name: random.uniform([BATCH], 0, rows, tf.int64) for name, rows in ids.items()}
    batch |= {name: random.normal([BATCH]) for name in numbers}
    label = tf.cast(random.uniform([BATCH, 1], 0, 2, tf.int64), tf.float32)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step() -> None:
        with tf.GradientTape() as tape:
            value = loss(label, network(batch, training=True))
        variables = network.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    seconds: list[float] = []

    def work() -> None:
        for _ in range(count):
            start = time.process_time()
            step()
            seconds.append(time.process_time() - start)

    for _ in range(_WARM_UP):
        step()
    measure.report(work)
    (folder / STEPS_FILE).write_text(json.dumps(seconds))


def main(side: str, folder: str, *count: str) -> None:
    """Do the work of a side."""
    if side == "steps":
        # A worker of the calculation is one core.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        _steps(Path(folder), int(count[0]))
    else:
        {"save": _save, "restore": _restore}[side](Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
