"""Run a side of the benchmark of embedding tables in a separate process.

python -m benchmarks.embedding_tables_program steps FOLDER STEPS ROWS LOOKUP TRAINING
python -m benchmarks.embedding_tables_program checkpoint FOLDER SECONDS ROWS HOW TRAINING

- `steps`: take STEPS steps after a warm-up. With LOOKUP `distinct`, as in the product, each row is fetched once;
  with `repeated`, a row is fetched as often as it occurs in the batch.
- `checkpoint`: take steps for SECONDS, then until a checkpoint is written. With HOW `waiting`, training waits for the
  checkpoint; with `background`, training continues meanwhile.

A row has an item, a user and a history of 20 items; the ids have a frequency of 1 / rank. The environment variables of
our nodes must be set.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import tensorflow as tf

from benchmarks.training_program import Steady
from components.compat.tensorflow import local_copy
from components.features.feature_spec import Ids
from components.models import layers
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.trainer import strategy
from components.trainer.checkpoint import Checkpoints
from components.trainer.cluster.supervisor import Supervisor
from components.trainer.cluster.task_server import serve
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig
from components.trainer.input_columns import InputShard
from components.trainer.input_pipeline import InputPipeline
from components.trainer.optimizer import create_optimizer
from components.trainer.prediction_head import BinaryHead
from components.trainer.steps import Stop
from components.trainer.training_loop import Folders, Learner

WIDTH, EVENTS = 32, 20
_MODEL = ModelConfig(kind="mlp", hidden=(128, 64), embedding=WIDTH)
_MEASURED = "measured.json"
_TASKS = "tasks"


class _Simulated(InputPipeline):
    """Batches of random ids, which TensorFlow draws in the task that trains on them."""

    rows: int

    def dataset(self, shard: InputShard) -> tf.data.Dataset:
        def batch(number: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
            seed = tf.stack([number, tf.cast(shard.index, tf.int64)])
            # The logarithm of an id is uniform, so that id k has a frequency of 1 / k.
            uniform = tf.random.stateless_uniform([self.batch_rows, 2 + EVENTS], seed, dtype=tf.float64)
            ids = tf.cast(tf.pow(tf.cast(self.rows - 1, tf.float64), uniform), tf.int64)
            label = tf.cast(ids[:, :1] % 2, tf.float32)
            return {"item": ids[:, 0], "user": ids[:, 1], "items": ids[:, 2:]}, label

        return tf.data.Dataset.counter().map(batch).prefetch(tf.data.AUTOTUNE)


def _look_up_repeatedly(table: Any, variable: Any, indices: tf.Tensor) -> tf.Tensor:
    """Look up rows, and fetch a row as often as it occurs in the batch."""
    return tf.cast(tf.nn.embedding_lookup(local_copy(variable), indices), table.compute_dtype)


def _run(folder: Path, config: TrainingConfig, act: Callable[[Role | None], None]) -> None:
    (folder / _TASKS).mkdir(parents=True)
    if config.strategy.is_cluster:
        Supervisor(config, act, folder / "logs").run()
    else:
        act(None)
    print((folder / _MEASURED).read_text())


@dataclass(frozen=True)
class Bench:
    """Arguments of a side; see the module's docstring."""

    folder: Path
    rows: int
    config: TrainingConfig

    def act(self, role: Role | None, measured: Callable[[Steady], dict[str, Any]]) -> None:
        """Run a task; the lead writes its measurements."""
        name = role.name if role else "process"
        (self.folder / _TASKS / name).write_text(str(os.getpid()))
        if role is not None and role.is_server:
            serve(role, self.folder / name)
        strategy.prepare(role, self.config)
        inputs = Inputs(
            {
                "item": Ids(self.rows),
                "user": Ids(self.rows),
                "items": Ids(self.rows, values=EVENTS, is_history=True, shares="item"),
            }
        )
        distribution = strategy.distribute(self.config, role)
        pipeline = type("Simulated", (_Simulated,), {"rows": self.rows})([], {}, self.config, self.config.batch_size)
        learner = Learner(lambda: build(_MODEL, inputs, 1), BinaryHead())
        steady = Steady(self.config, distribution, learner, pipeline, Folders("", None, ""), lambda step, network: None)
        (self.folder / _MEASURED).write_text(json.dumps(measured(steady)))

    def measure_usage(self) -> dict[str, tuple[float, float]]:
        """Return the CPU-seconds so far and the resident memory in MiB of all tasks, by name."""
        usage = {}
        for path in sorted((self.folder / _TASKS).iterdir()):
            process = psutil.Process(int(path.read_text()))
            times = process.cpu_times()
            usage[path.name] = (times.user + times.system, process.memory_info().rss / 2**20)
        return usage

    def steps(self, steady: Steady, count: int) -> dict[str, Any]:
        """Take steps; return the seconds, and the CPU-seconds and MiB of all tasks."""
        run = steady.warm_up()
        before, start = self.measure_usage(), time.perf_counter()
        run(count)
        wall, after = time.perf_counter() - start, self.measure_usage()
        tasks = {name: {"cpu": after[name][0] - before[name][0], "mb": after[name][1]} for name in after}
        return {"wall": wall, "steps": count, "tasks": tasks}

    def checkpoint(self, steady: Steady, seconds: float, in_background: bool) -> dict[str, Any]:
        """Take steps before and during a checkpoint; return the longest times between two calls."""
        with steady.distribution.strategy.scope():
            network = steady.learner.build()
            optimizer = create_optimizer(1e-3)
            optimizer.build(network.trainable_variables)
        steps = steady.steps(network, optimizer)
        at_once = steps.steps_per_call
        checkpoints = Checkpoints(str(self.folder / "checkpoints"), None, 1, network=network, optimizer=optimizer)
        for _ in range(3):
            steps.run(at_once, Stop)
        # The first checkpoint takes longer, because its graph is traced.
        checkpoints.save(1)
        most: dict[str, float] = {}

        def until(is_over: Callable[[], bool]) -> dict[str, float]:
            gaps: list[float] = []
            count, start = 0, time.perf_counter()
            last = start
            while not (is_over() and gaps):
                steps.run(at_once, Stop)
                now = time.perf_counter()
                gaps.append(now - last)
                last, count = now, count + at_once
                for name, (_, mb) in self.measure_usage().items():
                    most[name] = max(most.get(name, 0.0), mb)
            return {"longest": max(gaps), "steps_per_second": count / (last - start), "seconds": last - start}

        deadline = time.perf_counter() + seconds
        alone = until(lambda: time.perf_counter() > deadline)
        memory_alone = dict(most)
        start = time.perf_counter()
        checkpoints.save(2, in_background=in_background)
        returned = time.perf_counter() - start
        meanwhile = until(lambda: checkpoints.is_written)
        written = time.perf_counter() - start if in_background else returned
        if not in_background:
            meanwhile["longest"] += returned
        size = sum(path.stat().st_size for path in (self.folder / "checkpoints").glob("step-2.*"))
        return {
            "alone": alone,
            "meanwhile": meanwhile,
            "written": written,
            "mb": size / 2**20,
            "memory_alone": memory_alone,
            "memory": most,
        }


def main(kind: str, folder: str, amount: str, rows: str, how: str, training: str) -> None:
    """Do the work of a side."""
    bench = Bench(Path(folder), int(rows), TrainingConfig.model_validate_json(training))
    if how == "repeated":
        setattr(layers.Table, "_rows", _look_up_repeatedly)  # noqa: B010 - for this process only
    if kind == "steps":
        _run(bench.folder, bench.config, lambda role: bench.act(role, lambda steady: bench.steps(steady, int(amount))))
        return
    in_background = how == "background"
    _run(
        bench.folder,
        bench.config,
        lambda role: bench.act(role, lambda steady: bench.checkpoint(steady, float(amount), in_background)),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
