"""Trainings on a local cluster, run as the Trainer's node runs them, with access to their processes."""

from __future__ import annotations

import ctypes
import json
import multiprocessing.connection
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pipeline.orchestration.local.processes import NodeProcess, start_server
from tests.support.data import people
from tests.support.programs import forked_export_check
from tests.support.runs.command import command
from tests.support.servers.in_fork_server import in_child, result_of

PATIENCE_SECONDS = 240
"""No test waits so long: it only keeps one that hangs from holding up the others."""


@dataclass(frozen=True)
class Prepared:
    """The outputs of Transform for a data set."""

    config: str
    artifacts: Path

    def uri(self, node: str, output: str) -> str:
        (file,) = (self.artifacts / node / output).iterdir()
        return str(file)


class Training:
    """A running training.

    Args:
      prepared: Input of the training.
      folder: Folder for its outputs; empty, or the folder of an earlier attempt.
      training: the config's section.
      model: Fields of the model section that replace the fields in `prepared`.
      base: the folder of an earlier training whose model is the latest blessed one; None if there is none.
      small_disk: Whether the model's folder is on a disk that is too small for it; requires root.
    """

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        training: Mapping[str, Any],
        small_disk: bool = False,
        model: Mapping[str, Any] | None = None,
        base: Path | None = None,
    ) -> None:
        self.folder = folder
        self.config = training
        self.log = folder / "node.log"
        start_server()
        checking = (forked_export_check.call, forked_export_check.python())
        arguments = (prepared, folder, dict(training), small_disk, model, base)
        self._task = NodeProcess("Trainer", self.log, *checking, train, *arguments)
        self.supervisor = psutil.Process(self._task._process.pid)

    def process(self, task: str) -> int:
        """Return the newest process of a task of the cluster."""
        return int(re.findall(rf"started {task} as process (\d+)", self.log.read_text())[-1])

    def kill(self, *tasks: str, by: signal.Signals = signal.SIGKILL) -> None:
        for process in [self.process(task) for task in tasks]:
            os.kill(process, by)

    def until(self, happened: Callable[[], Any]) -> Any:
        """Poll until a function returns a true value; return the value."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (result := happened()):
            assert not self._task.poll(), f"the training has ended:\n{self.log.read_text()[-3000:]}"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        return result

    def until_step(self, step: int) -> None:
        """Wait until this number of steps is logged."""
        self.until(lambda: self.step() >= step)

    def step(self) -> int:
        """Return the step that the lead has logged last."""
        logs = [self.folder / "work" / "logs" / f"{name}.log" for name in ("chief-0", "worker-0")]
        lead = next((log.read_text() for log in logs if log.exists()), "")
        steps = re.findall(r"step (\d+): loss", lead)
        return int(steps[-1]) if steps else 0

    def checkpoints(self) -> list[Path]:
        """Return the data files of the checkpoints that are whole, the oldest first."""
        index_files = (self.folder / "work" / "checkpoints").glob("*/step-*.index")
        ordered = sorted(index_files, key=lambda path: int(path.stem.partition("-")[2]))
        return [data for index in ordered for data in index.parent.glob(f"{index.stem}.data-00000-*")]

    def half_written(self) -> list[Path]:
        """Return the files of a checkpoint that is being written."""
        return list((self.folder / "work" / "checkpoints").glob("*/step-*temp*/*"))

    def end(self) -> dict[str, Any]:
        """Wait for the training; return its summary or raise its error. Check that no process is left."""
        family = self.supervisor.children(recursive=True) if self.supervisor.is_running() else []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._task.poll():
            multiprocessing.connection.wait(self._task.waitables, timeout=1)
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
        _, alive = psutil.wait_procs(family, timeout=10)
        assert not alive
        result: dict[str, Any] = result_of(self._task)
        return result


def train(
    prepared: Prepared,
    folder: Path,
    training: dict[str, Any],
    small_disk: bool,
    model: Mapping[str, Any] | None,
    base: Path | None,
) -> dict[str, Any]:
    """Run the Trainer's executor in this process; return the custom properties of its ModelRun and its files."""
    from tfx.dsl.components.base.base_executor import BaseExecutor
    from tfx.types.standard_artifacts import Model, ModelRun

    from components.trainer.executor import Executor

    plan, inputs = plan_of(prepared, training, model or {}), inputs_of(prepared)
    if base is not None:
        inputs["base_model"] = artifact(Model, str(base / "model"))
    outputs = {"model": artifact(Model, str(folder / "model")), "model_run": artifact(ModelRun, str(folder / "run"))}
    for name in ("model", "run", "work"):
        (folder / name).mkdir(exist_ok=True)
    if small_disk:
        _mount_small_disk(folder / "model")
    Executor(BaseExecutor.Context(stateful_working_dir=str(folder / "work"))).Do(inputs, outputs, properties_of(plan))
    run = outputs["model_run"][0]
    names = ("steps", "restarts", "repeated", "damaged", "mesh_devices", "mesh_device_mb")
    counts = {name: run.get_int_custom_property(name) for name in names}
    return {**counts, "tasks": run.get_string_custom_property("tasks")}


def train_on_devices(
    prepared: Prepared,
    folder: Path,
    training: dict[str, Any],
    devices: int,
    model: Mapping[str, Any] | None = None,
) -> None:
    """Run the Trainer's executor in this process, with its CPU divided into this number of logical devices."""
    import tensorflow as tf

    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    train(prepared, folder, training, small_disk=False, model=model, base=None)


def plan_of(prepared: Prepared, training: Mapping[str, Any], model: Mapping[str, Any] | None = None) -> Any:
    """Return the Trainer's plan, with these fields of both sections; import what a node imports."""
    from components.features.plan import FeaturePlan
    from components.trainer.plan import TrainingPlan
    from pipeline.authoring.config import load

    config = load(prepared.config).config
    # A function that builds the network excludes all other fields.
    fields = {} if model and "build" in model else config.model.model_dump()
    return TrainingPlan(
        features=FeaturePlan(features=config.features, labels=config.data.declared_labels, task=config.data.task),
        model={**fields, **(model or {})},
        training={**config.training.model_dump(), **training},
    )


def properties_of(plan: Any) -> dict[str, str]:
    """Return the Trainer's parameters."""
    return {
        "run_fn": "components.trainer.run_fn.run_fn",
        "train_args": '{"num_steps": 1}',
        "eval_args": '{"num_steps": 1}',
        "custom_config": json.dumps({"plan": plan.model_dump_json(), "code": "of the test"}),
    }


def inputs_of(prepared: Prepared) -> dict[str, list[Any]]:
    """Return the inputs of a node that trains; import TFX."""
    from tfx.types.standard_artifacts import Examples, Schema, TransformGraph

    examples = artifact(Examples, prepared.uri("Transform", "transformed_examples"))
    examples[0].split_names = '["train", "eval"]'
    return {
        "examples": examples,
        "transform_graph": artifact(TransformGraph, prepared.uri("Transform", "transform_graph")),
        "schema": artifact(Schema, prepared.uri("SchemaGen", "schema")),
    }


def artifact(kind: Any, uri: str) -> list[Any]:
    """Return an input or output of one artifact, of a type of TFX's."""
    artifact = kind()
    artifact.uri = uri
    return [artifact]


def _mount_small_disk(at: Path) -> None:
    """Mount a small disk that only this process and its children see, and that ends with them."""
    libc = ctypes.CDLL(None, use_errno=True)
    private = libc.unshare(_CLONE_NEWNS) == 0 and libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
    if not private or libc.mount(b"tmpfs", bytes(at), b"tmpfs", 0, b"size=64k"):
        raise OSError(ctypes.get_errno(), f"no small disk could be mounted at {at}")


_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 0x40000


def auc(prepared: Prepared, folder: Path) -> float:
    """Return the AUC of a training's exported model on the eval split, served in a new process."""
    return float(in_child(folder / "judge.log", _auc, prepared.uri("ExampleGen", "examples"), str(folder / "model")))


def _auc(examples: str, model: str) -> float:
    import tensorflow as tf
    from sklearn.metrics import roc_auc_score

    rows = tf.constant(eval_examples(examples))
    loaded = tf.saved_model.load(f"{model}/Format-Serving")
    (label,) = loaded.signatures["transform_labels"](examples=rows).values()
    (probability,) = loaded.signatures["serving_default"](examples=rows).values()
    return float(roc_auc_score(label.numpy().ravel(), probability.numpy().ravel()))


def eval_examples(examples: str) -> list[bytes]:
    """Return the rows of the eval split of an artifact in Parquet files, as serialized tf.Examples."""
    from components.data.example_encoder import encode
    from components.data.examples import Examples

    paths = tuple(str(path) for path in sorted(Path(examples, "Split-eval").iterdir()))
    return [row for batch in Examples(paths, "parquet").batches() for row in encode(batch).to_pylist()]


def prepare(folder: Path) -> Prepared:
    """Run the pipeline up to Transform on a few thousand synthetic people, in an empty folder."""
    config = people.write_config(
        folder / "people.yaml",
        people.write(folder / "people.csv", people.rows(8000)),
        data={**people.CONFIG["data"], "split": {"train": 1, "eval": 1}},
        features={
            "columns": {
                "age": ["z_score", {"piecewise_linear": {"bins": 8}}],
                "hours": ["z_score", {"bucketize": {"buckets": 40}}],
                "city": "vocab",
            }
        },
        model={"kind": "wide_deep", "hidden": [16]},
    )
    ended = command("--local", "--config", str(config), "--to", "Transform", "--output", str(folder))
    assert ended.exit_code == 0, ended.err
    return Prepared(str(config), folder / "people" / "artifacts")
