"""TFX's Trainer executor: trains in this process, supervises a local cluster, or runs one task of a cluster."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.components.util import udf_utils
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils, json_utils, path_utils

from components.base import user_code
from components.base.errors import InputError, MachineError
from components.base.files import is_remote
from components.compat import tfx as compat
from components.compat.tfx.trainer import TrainerExecutor
from components.results import task_load
from components.results.device_memory import DEVICES, LARGEST
from components.results.input_wait import SECONDS, WAITED
from components.trainer import input_wait, table_memory
from components.trainer.cluster import tf_config
from components.trainer.cluster.tf_config import Role
from components.trainer.hyperparameters import with_best_values
from components.trainer.plan import TrainingPlan
from components.trainer.remote.config import WhereConfig

STATISTICS = "statistics"
"""The input with the statistics of the raw columns, and the argument of run_fn with their files."""

_LOGS = "logs"
_CURVES = "tasks"
"""Folder of the curves of the tasks' loads."""
_CHECKPOINTS = "checkpoints"
_CHECKPOINT_FIELDS = (
    *("steps", "batch_size", "learning_rate", "schedule", "optimizer", "table_learning_rate", "weight_decay"),
    *("class_weights", "precision"),
    *("seed", "warm_start", "new_ids", "early_stopping", "validation"),
)
"""The fields of the training section that a checkpoint depends on. A resumed run may use another cluster."""


class Executor(TrainerExecutor):
    """Trains by the plan in `custom_config`.

    Without TF_CONFIG and with a strategy of several processes, it supervises a cluster on this machine. With TF_CONFIG,
    it runs the task that TF_CONFIG names, under Kubernetes operators and Vertex AI. With `training.where`, it submits
    such tasks and waits for them.
    """

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: dict[str, list[Any]], output_dict: dict[str, list[Any]], exec_properties: dict[str, Any]
    ) -> None:
        """Train the model of the plan.

        Args:
          input_dict: `examples`, `transform_graph` and `schema`; optionally `statistics` of the raw columns,
            `hyperparameters` of a Tuner, which replace values of the plan, and `base_model`, for a warm start.
          output_dict: `model` and `model_run`. The ModelRun contains TensorBoard's files and the last checkpoints; for
            a local cluster also the tasks' logs and curves and, as custom properties, the supervisor's Summary.
          exec_properties: Parameters of the Trainer.

        Raises:
          PipelineError: If the config, the data or the machine makes the training fail.
        """
        plan = _plan(input_dict, exec_properties)
        config = plan.training
        role = tf_config.role()
        tf_config.remove_evaluator()
        run_task = functools.partial(self._run_task, input_dict, output_dict, exec_properties)
        if role is not None:
            run_task(Path(tempfile.mkdtemp()), role)
            return
        if not plan.model.run_fn:
            table_memory.check(plan, artifact_utils.get_single_uri(input_dict["transform_graph"]))
        model_run = artifact_utils.get_single_instance(output_dict["model_run"])
        if config.where is not None:
            self._train_remotely(plan, config.where, input_dict, output_dict, exec_properties)
            _record_measurements(model_run)
            return
        durable = self._find_durable_folder(output_dict)
        # The tasks' logs are local files even if the checkpoints are remote.
        local = Path(tempfile.mkdtemp()) if is_remote(durable) else Path(durable)
        try:
            if config.strategy.is_cluster:
                from components.trainer.cluster.supervisor import Supervisor

                run_local_task = functools.partial(run_task, local)
                summary = Supervisor(config, run_local_task, local / _LOGS, local / _CURVES).run()
                model_run.set_string_custom_property(task_load.PROPERTY, task_load.to_json(summary.tasks))
                counts = dataclasses.asdict(dataclasses.replace(summary, tasks=()))
                counts.pop("tasks")
                for name, value in counts.items():
                    model_run.set_int_custom_property(name, value)
            else:
                super().Do(input_dict, output_dict, exec_properties)
        except SystemExit as error:
            if not user_code.is_termination(error):
                raise InputError(
                    f"training: expected code that returns, received sys.exit({error.code!r})",
                    "remove the call of sys.exit from the code of the model; the whole traceback is in the node's log",
                ) from error
            raise MachineError(
                "training was stopped by SIGTERM", "--resume the run: it continues from the last checkpoint"
            ) from error
        _record_measurements(model_run)
        checkpoints = f"{durable}/{_CHECKPOINTS}/{_compute_digest(plan, exec_properties)}"
        folders = {_LOGS: f"{local}/{_LOGS}", _CURVES: f"{local}/{_CURVES}", _CHECKPOINTS: checkpoints}
        for name, folder in folders.items():
            if fileio.exists(folder) and not folder.startswith(f"{model_run.uri}/"):
                _move(folder, f"{model_run.uri}/{name}")
        if is_remote(durable):
            shutil.rmtree(local)

    def _train_remotely(
        self,
        plan: TrainingPlan,
        where: WhereConfig,
        input_dict: dict[str, list[Any]],
        output_dict: dict[str, list[Any]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Train in a job of Kubernetes or Vertex AI, which writes to a folder that outlives a failed attempt."""
        from components.trainer.remote import job_file
        from components.trainer.remote.remote_training import train, warn_of_other_version

        durable = self._find_durable_folder(output_dict)
        local = Path(tempfile.mkdtemp()) if is_remote(durable) else Path(durable)
        job_folder = f"{durable}/{_compute_digest(plan, exec_properties)}"
        outputs = {key: [_copy_with_uri(artifact, f"{job_folder}/{key}")] for key, [artifact] in output_dict.items()}
        text = job_file.write(input_dict, outputs, _remove_where(exec_properties))
        context = compat.executor_context(self)
        pipeline = context.pipeline_info.id if context and context.pipeline_info else "model"
        restarts = train(plan.training, where, pipeline, text, durable, local / _LOGS)
        for key, [artifact] in output_dict.items():
            for name in fileio.listdir(f"{job_folder}/{key}"):
                _move(f"{job_folder}/{key}/{name}".rstrip("/"), f"{artifact.uri}/{name}".rstrip("/"))
        warn_of_other_version(path_utils.serving_model_path(artifact_utils.get_single_uri(output_dict["model"])))
        [model_run] = output_dict["model_run"]
        model_run.set_int_custom_property("restarts", restarts)
        _move(f"{local}/{_LOGS}", f"{model_run.uri}/{_LOGS}")
        if is_remote(durable):
            shutil.rmtree(local)

    def _run_task(
        self,
        input_dict: dict[str, list[Any]],
        output_dict: dict[str, list[Any]],
        exec_properties: dict[str, Any],
        folder: Path,
        role: Role,
    ) -> None:
        """Run one task of a cluster; `folder` is a local folder for files that other tasks do not read."""
        if role.is_server:
            from components.trainer.cluster.task_server import serve

            serve(role, folder / role.name)
        elif role.is_lead:
            super().Do(input_dict, output_dict, exec_properties)
        else:
            arguments = self.fn_args(input_dict, output_dict, exec_properties)
            # Only the lead writes the model, and only the lead and the evaluator write curves. TFX's Do would expect a
            # model from every process.
            scratch = str(folder / role.name)
            arguments.serving_model_dir = arguments.eval_model_dir = f"{scratch}/model"
            if not role.is_evaluator:
                arguments.model_run_dir = f"{scratch}/model_run"
            udf_utils.get_fn(exec_properties, "run_fn")(arguments)

    def fn_args(
        self, input_dict: dict[str, list[Any]], output_dict: dict[str, list[Any]], exec_properties: dict[str, Any]
    ) -> FnArgs:
        """Return TFX's arguments, with the plan, the checkpoints' folder and the statistics in `custom_config`."""
        arguments = super().fn_args(input_dict, output_dict, exec_properties)
        plan = _plan(input_dict, exec_properties)
        checkpoints = (
            f"{self._find_durable_folder(output_dict)}/{_CHECKPOINTS}/{_compute_digest(plan, exec_properties)}"
        )
        arguments.custom_config = {
            **arguments.custom_config,
            "plan": plan.model_dump_json(),
            _CHECKPOINTS: checkpoints,
            STATISTICS: _list_statistics(input_dict.get(STATISTICS)),
        }
        return arguments

    def _find_durable_folder(self, output_dict: dict[str, list[Any]]) -> str:
        """Return a folder that remains after a failed attempt: TFX's, or without TFX's launcher the ModelRun's."""
        return str(compat.stateful_working_dir(self) or artifact_utils.get_single_uri(output_dict["model_run"]))


def _record_measurements(model_run: Any) -> None:
    """Record how long the training took and waited for input, and the memory of a mesh, if a loop measured them."""
    from components.trainer import placement

    if devices := placement.read_devices(model_run.uri):
        model_run.set_int_custom_property(DEVICES, len(devices))
        model_run.set_int_custom_property(LARGEST, -(-max(device.bytes for device in devices) // 10**6))
    wait = input_wait.read(model_run.uri)
    if wait is not None and wait.seconds:
        model_run.set_int_custom_property(SECONDS, round(wait.seconds))
        model_run.set_int_custom_property(WAITED, round(100 * wait.waited / wait.seconds))


def _list_statistics(statistics: list[Any] | None) -> dict[str, str]:
    """Return split → file of its statistics; empty if the Trainer did not get statistics."""
    return {
        split: f"{artifact_utils.get_split_uri(statistics, split)}/FeatureStats.pb"
        for artifact in statistics or ()
        for split in artifact_utils.decode_split_names(artifact.split_names)
    }


def _move(source: str, destination: str) -> None:
    """Move a folder, also from the local disk into an object store."""
    if is_remote(destination) and not is_remote(source):
        io_utils.copy_dir(source, destination)
        fileio.rmtree(source)
    else:
        fileio.rename(source, destination)


def _plan(input_dict: dict[str, list[Any]], exec_properties: dict[str, Any]) -> TrainingPlan:
    """Return the plan of the config, with the best values if a Tuner ran."""
    plan = TrainingPlan.model_validate_json(_parse_custom_config(exec_properties)["plan"])
    if not input_dict.get("hyperparameters"):
        return plan
    return with_best_values(plan, artifact_utils.get_single_uri(input_dict["hyperparameters"]))


def _parse_custom_config(exec_properties: dict[str, Any]) -> dict[str, Any]:
    config = exec_properties["custom_config"]
    return dict(json_utils.loads(config) if isinstance(config, str) else config)


def _remove_where(exec_properties: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a task, which trains itself instead of submitting a job."""
    config = _parse_custom_config(exec_properties)
    plan = TrainingPlan.model_validate_json(config["plan"])
    here = plan.model_copy(update={"training": plan.training.model_copy(update={"where": None})})
    return {**exec_properties, "custom_config": json_utils.dumps({**config, "plan": here.model_dump_json()})}


def _copy_with_uri(artifact: Any, uri: str) -> Any:
    """Return a new artifact of the same type."""
    renamed = type(artifact)()
    renamed.uri = uri
    return renamed


def _compute_digest(plan: TrainingPlan, exec_properties: dict[str, Any]) -> str:
    """Return a digest of all that a checkpoint depends on, so that another model or schedule does not restore it."""
    fields = plan.model_dump(
        mode="json", include={"features": True, "model": True, "training": set(_CHECKPOINT_FIELDS)}
    )
    # Not the goal itself, so that a run with another goal continues from the same checkpoints.
    fields["holds_out"] = plan.holds_out
    text = json.dumps([fields, _parse_custom_config(exec_properties).get("code")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
