"""Run a side of the training benchmark: prepare a training, and measure some steps.

python -m benchmarks.training_program input SIDE STEPS CONFIG [FIELD=VALUE …]
python -m benchmarks.training_program examples FOLDER
python -m benchmarks.training_program scaling FOLDER STEPS TRAINING

- `input`: take steps of a config's training on the transformed examples of its run, in turns with steps on a constant
  batch in memory, so that other load on the machine affects both. SIDE is the source of the real batches: `ours`;
  `tfrecords`, ours from the same rows in TFRecords; or `stock`, the dataset of TFX's template from these TFRecords.
- `examples`: write transformed examples for `scaling`.
- `scaling`: take steps of a large DLRM in one process or in a cluster of processes, each task on one core. TRAINING is
  the training section as JSON.

The environment variables of our nodes must be set. The measurement starts when every task has traced its graphs, parsed
its examples and taken some steps.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.data import tfrecord_writer
from components.data.example_encoder import encode
from components.features import feature_names, images
from components.features.compact import CompactFeatures
from components.features.config import FeaturesConfig
from components.features.feature_spec import Dense, Ids
from components.features.plan import FeaturePlan
from components.ingest import shard_writer
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs, inputs
from components.trainer import input_pipeline, strategy
from components.trainer.augmentation import augment
from components.trainer.cluster.supervisor import Supervisor
from components.trainer.cluster.task_server import serve
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig
from components.trainer.head_creation import create_head
from components.trainer.input_columns import InputShard
from components.trainer.input_pipeline import InputPipeline, PixelCache
from components.trainer.optimizer import create_optimizer
from components.trainer.prediction_head import BinaryHead
from components.trainer.steps import Stop
from components.trainer.training_loop import Folders, Learner, SynchronousSteps, TrainingLoop
from pipeline.authoring.config import load

WARM_UP = 2
"""Executions of each worker before the measurement."""
TABLES, IDS, NUMBERS = 8, 125_000, 13
"""Columns of ids, ids per column, and columns of numbers of the large DLRM."""
LARGE = ModelConfig(kind="dlrm", embedding=32, hidden=(512, 256, 128))
ROWS = 1 << 17
TURN = 20
"""Steps with one input before the other input takes its turn."""
_REST = 0.2
"""Seconds without CPU time after which a process is idle, even if other processes use the cores."""
_MEASURED = "measured.json"
_TASKS = "tasks"


@dataclass(frozen=True)
class Steady(TrainingLoop):
    """A training loop for measuring steps, which does not write checkpoints or curves."""

    def warm_up(self) -> Callable[[int], None]:
        """Run some steps, and return a function that runs a number of further steps."""
        with self.distribution.strategy.scope():
            network = self.learner.build()
            optimizer = create_optimizer(
                tf_keras.optimizers.schedules.CosineDecay(self.config.learning_rate, self.config.steps)
            )
            optimizer.build(network.trainable_variables)
        steps = self.steps(network, optimizer)
        at_once = self.config.steps_per_execution

        def run(count: int) -> None:
            if not isinstance(steps, SynchronousSteps):
                steps.run(count, Stop)
                return
            for done in range(0, count, at_once):
                steps.run(min(at_once, count - done), Stop)

        run(WARM_UP * at_once * (1 if isinstance(steps, SynchronousSteps) else self.distribution.workers))
        return run


def _steady(
    config: TrainingConfig,
    role: Role | None,
    learner: Learner,
    files: Sequence[str],
    spec: dict[str, Any],
    pipeline: Callable[..., InputPipeline] = InputPipeline,
) -> Steady:
    distribution = strategy.distribute(config, role)
    examples = pipeline(files, spec, config, config.replica_rows(distribution.strategy.num_replicas_in_sync))
    return Steady(config, distribution, learner, examples, Folders("", None, ""), lambda step, network: None)


class _ConstantBatch(InputPipeline):
    """Repeats one batch in memory."""

    def dataset(self, shard: InputShard) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(next(iter(super().dataset(shard)))).repeat()


def _input(side: str, steps: int, path: str, assignments: Sequence[str]) -> None:
    config = load(path, assignments).config
    training = config.training
    transformed = Path(config.paths().artifacts) / "Transform"
    graph, examples = (next((transformed / key).iterdir()) for key in ("transform_graph", "transformed_examples"))
    transform = tft.TFTransformOutput(str(graph))
    spec = transform.transformed_feature_spec()
    if side != "ours":
        examples = _as_tfrecords(examples, transformed / "tfrecords")
    files = input_pipeline.find([f"{examples}/Split-train/*"])
    features = FeaturePlan(features=config.features, labels=config.data.declared_labels, task=config.data.task)
    model_inputs = inputs(features, transform.vocabulary_size_by_name)
    head = create_head(features, transform)

    class Stock(InputPipeline):
        def dataset(self, shard: InputShard) -> tf.data.Dataset:
            return _stock(examples, files, transform, self.batch_rows)

    learner = Learner(lambda: build(config.model, model_inputs, head.outputs), head)
    expansion = _expansion(config.features, training)
    pipelines = {"constant": _ConstantBatch, "real": Stock if side == "stock" else InputPipeline}
    runs = {
        name: _steady(training, None, learner, files, spec, functools.partial(pipeline, **expansion)).warm_up()
        for name, pipeline in pipelines.items()
    }
    cpu = dict.fromkeys(runs, 0.0)
    for _ in range(0, steps, TURN):
        for name, run in runs.items():
            before = _measure_settled_cpu()
            run(TURN)
            cpu[name] += _measure_settled_cpu() - before
    print(json.dumps(cpu))


def _expansion(features: FeaturesConfig, training: TrainingConfig) -> dict[str, Any]:
    """Return the arguments of an InputPipeline for compact features, as in the Trainer."""
    compact = CompactFeatures.find(features)
    if not compact.images:
        return {"decode": compact.expand} if compact else {}
    return {
        "decode": compact.expand,
        "augment": functools.partial(augment, compact.images, training.augmentation),
        "pixel_cache": PixelCache(compact.pack, compact.unpack, images.row_bytes(compact.images)),
    }


def _measure_settled_cpu() -> float:
    """Wait until this process is idle, and return its CPU-seconds; prefetching counts for the turn that it follows."""
    before = time.process_time()
    while True:
        time.sleep(_REST)
        now = time.process_time()
        if now - before < _REST / 20:
            return now
        before = now


def _as_tfrecords(examples: Path, folder: Path) -> Path:
    """Write the train split of an artifact in Parquet files as TFRecords, once; return the new artifact's folder."""
    if folder.exists():
        return folder
    from tfx.components.util import examples_utils
    from tfx.proto import example_gen_pb2
    from tfx.types.standard_artifacts import Examples

    from components.data.example_artifacts import write_tfrecords

    artifact = Examples()
    artifact.uri, artifact.split_names = str(examples), '["train"]'
    examples_utils.set_payload_format(artifact, example_gen_pb2.FORMAT_PARQUET)
    write_tfrecords(artifact, str(folder), ["train"])
    return folder


def _stock(examples: Path, files: list[str], transform: Any, batch_size: int) -> Any:
    """Return the dataset of `_input_fn` in TFX's taxi template, with the label in the shape that our loss expects."""
    from tfx.components.util import tfxio_utils
    from tfx.types.standard_artifacts import Examples
    from tfx_bsl.public.tfxio import TensorFlowDatasetOptions

    artifact = Examples()
    artifact.uri = str(examples)
    factory = tfxio_utils.get_tf_dataset_factory_from_artifact([artifact], ["Trainer"])
    options = TensorFlowDatasetOptions(batch_size=batch_size, label_key=feature_names.LABEL)
    dataset = factory(files, options, transform.transformed_metadata.schema).repeat()
    return dataset.map(lambda features, label: (features, tf.reshape(label, [-1, 1])))


def _examples(folder: Path) -> None:
    """Write rows of equally frequent ids, numbers and a binary label."""
    folder.mkdir()
    random = np.random.default_rng(0)
    columns = {name: random.integers(0, IDS, ROWS) for name in _ids()}
    columns |= {name: random.normal(size=ROWS).astype(np.float32) for name in _numbers()}
    columns[feature_names.LABEL] = random.integers(0, 2, ROWS).astype(np.float32)
    records = tfrecord_writer.frame_records(
        encode(pa.RecordBatch.from_pydict({key: pa.array(values) for key, values in columns.items()}))
    )
    writer = shard_writer.Writer(str(folder), ["train"])
    writer.write(records, np.zeros(ROWS, np.int64), ("", 0))
    writer.close()


def _ids() -> list[str]:
    return [f"id_{number}" for number in range(TABLES)]


def _numbers() -> list[str]:
    return [f"number_{number}" for number in range(NUMBERS)]


def _scaling(folder: Path, steps: int, config: TrainingConfig) -> None:
    """Train, and print the usage of the tasks, see `Taken`."""
    (folder / _TASKS).mkdir()
    if config.strategy.is_cluster:
        Supervisor(config, lambda role: _act(folder, steps, config, role), folder / "logs").run()
    else:
        _act(folder, steps, config, None)
    print((folder / _MEASURED).read_text())


def _act(folder: Path, steps: int, config: TrainingConfig, role: Role | None) -> None:
    """Run a task. Worker i and ps i run on core i, and the chief on the first core."""
    cores = sorted(os.sched_getaffinity(0))
    core = role.index % len(cores) if role else 0
    os.sched_setaffinity(0, {cores[core]})
    name = role.name if role else "single"
    (folder / _TASKS / name).write_text(json.dumps({"process": os.getpid(), "core": core}))
    if role is not None and role.is_server:
        serve(role, folder / name)
    strategy.prepare(role, config)
    spec = {name: tf.io.FixedLenFeature([], tf.int64) for name in _ids()}
    spec |= {name: tf.io.FixedLenFeature([], tf.float32) for name in (*_numbers(), feature_names.LABEL)}
    features: dict[str, Dense | Ids] = {name: Ids(IDS) for name in _ids()}
    model_inputs = Inputs(features | {name: Dense() for name in _numbers()})
    files = input_pipeline.find([f"{folder.parent}/examples/*"])
    steady = _steady(config, role, Learner(lambda: build(LARGE, model_inputs, 1), BinaryHead()), files, spec)
    run = steady.warm_up()
    before, start = _measure_tasks(folder), time.perf_counter()
    run(steps)
    wall, after = time.perf_counter() - start, _measure_tasks(folder)
    if role is None or role.is_lead:
        tasks = {name: after[name].since(before[name]) for name in after}
        (folder / _MEASURED).write_text(json.dumps({"wall": wall, "tasks": {k: asdict(v) for k, v in tasks.items()}}))
    if config.strategy.kind == "multi_worker":
        strategy.wait_for_all_replicas(steady.distribution.strategy)


@dataclass(frozen=True)
class Taken:
    """CPU time and memory of a task.

    Attributes:
      core: Number of the task's core.
      user: CPU-seconds in the process.
      system: CPU-seconds in the kernel.
      mb: Resident memory in MiB.
    """

    core: int
    user: float
    system: float
    mb: float

    def since(self, before: Taken) -> Taken:
        """Return the usage since an earlier measurement."""
        return Taken(self.core, round(self.user - before.user, 2), round(self.system - before.system, 2), self.mb)


def _measure_tasks(folder: Path) -> dict[str, Taken]:
    """Return the usage of all tasks so far, by name."""
    usage = {}
    for path in sorted((folder / _TASKS).iterdir()):
        task = json.loads(path.read_text())
        process = psutil.Process(task["process"])
        times = process.cpu_times()
        usage[path.name] = Taken(task["core"], times.user, times.system, round(process.memory_info().rss / 2**20, 1))
    return usage


def main(benchmark: str, *arguments: str) -> None:
    """Do the work of a side."""
    if benchmark == "input":
        side, steps, path, *assignments = arguments
        _input(side, int(steps), path, assignments)
    elif benchmark == "examples":
        _examples(Path(arguments[0]))
    else:
        folder, steps, training = arguments
        _scaling(Path(folder), int(steps), TrainingConfig.model_validate_json(training))


if __name__ == "__main__":
    main(*sys.argv[1:])
