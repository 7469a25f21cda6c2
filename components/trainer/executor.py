"""TFX's Trainer executor, for one process or a cluster: it starts the cluster, or is one task of it, or is alone."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tfx.components.trainer.executor import GenericExecutor
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.components.util import udf_utils
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils, json_utils

from components.errors import InputError, MachineError
from components.trainer.cluster import roles
from components.trainer.cluster.roles import Role
from components.trainer.plan import TrainingPlan

_LOGS = "logs"
_CHECKPOINTS = "checkpoints"
_SHAPING = (
    *("steps", "batch_size", "learning_rate", "table_learning_rate", "weight_decay", "class_weights", "precision"),
    *("seed", "warm_start", "early_stopping"),
)
"""What of the training section a checkpoint depends on; the cluster may be another one when a run is resumed."""


class Executor(GenericExecutor):  # type: ignore[misc]
    """Trains by the plan in `custom_config`.

    Without TF_CONFIG and with a strategy that takes several processes it supervises a cluster on this machine. With
    TF_CONFIG it acts as the task that this tells of, and so runs unchanged under Kubernetes' operators and Vertex AI.
    """

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: dict[str, list[Any]], output_dict: dict[str, list[Any]], exec_properties: dict[str, Any]
    ) -> None:
        """Trains.

        Args:
          input_dict: examples, transform_graph and schema; and hyperparameters, if a Tuner has found some: they take
            the place of the plan's. And base_model, for a warm start.
          output_dict: model and model_run. The ModelRun gets TensorBoard's files, the last checkpoints, and of a
            cluster on this machine the tasks' logs and, as custom properties, a Summary.
          exec_properties: the Trainer's.

        Raises:
          PipelineError: what the config, the data or the machine has to do with it.
        """
        plan = _plan(input_dict, exec_properties)
        config = plan.training
        role = roles.role()
        act = functools.partial(self._act, input_dict, output_dict, exec_properties)
        if role is not None:
            act(Path(tempfile.mkdtemp()), role)
            return
        if config.cluster != "local":
            raise InputError(
                f"training.cluster: {config.cluster}, and this process is no task of a cluster: TF_CONFIG is not set",
                "start the tasks that `runner.py manifest` describes, or train here with training.cluster: local",
            )
        model_run = artifact_utils.get_single_instance(output_dict["model_run"])
        kept = self._working_folder(output_dict)
        # The tasks' logs are files of this machine, wherever the checkpoints lie.
        work = Path(tempfile.mkdtemp()) if "://" in kept else Path(kept)
        try:
            if config.strategy.is_cluster:
                from components.trainer.cluster.supervisor import Supervisor

                summary = Supervisor(config, functools.partial(act, work), work / _LOGS).run()
                for name, value in dataclasses.asdict(summary).items():
                    model_run.set_int_custom_property(name, value)
            else:
                super().Do(input_dict, output_dict, exec_properties)
        except SystemExit as error:
            raise MachineError(
                "training was asked to end by SIGTERM", "--resume the run: it goes on from the last checkpoint"
            ) from error
        left = {_LOGS: f"{work}/{_LOGS}", _CHECKPOINTS: f"{kept}/{_CHECKPOINTS}/{_digest(plan, exec_properties)}"}
        for name, folder in left.items():
            if fileio.exists(folder) and not folder.startswith(f"{model_run.uri}/"):
                _move(folder, f"{model_run.uri}/{name}")
        if "://" in kept:
            shutil.rmtree(work)

    def _act(
        self,
        input_dict: dict[str, list[Any]],
        output_dict: dict[str, list[Any]],
        exec_properties: dict[str, Any],
        folder: Path,
        role: Role,
    ) -> None:
        """What one task of a cluster does; `folder` is on its machine, for what nobody else needs."""
        if role.is_server:
            from components.trainer.cluster.server import serve

            serve(role, folder / role.name)
        elif role.is_lead:
            super().Do(input_dict, output_dict, exec_properties)
        else:
            arguments = self._GetFnArgs(input_dict, output_dict, exec_properties)
            # Only the lead's model counts, and the evaluator's curves; TFX would look for a model of each.
            scratch = str(folder / role.name)
            arguments.serving_model_dir = arguments.eval_model_dir = f"{scratch}/model"
            if role.kind != "evaluator":
                arguments.model_run_dir = f"{scratch}/model_run"
            udf_utils.get_fn(exec_properties, "run_fn")(arguments)

    def _GetFnArgs(  # noqa: N802 - TFX's name
        self, input_dict: dict[str, list[Any]], output_dict: dict[str, list[Any]], exec_properties: dict[str, Any]
    ) -> FnArgs:
        arguments = super()._GetFnArgs(input_dict, output_dict, exec_properties)
        plan = _plan(input_dict, exec_properties)
        checkpoints = f"{self._working_folder(output_dict)}/{_CHECKPOINTS}/{_digest(plan, exec_properties)}"
        arguments.custom_config = {
            **arguments.custom_config,
            "plan": plan.model_dump_json(),
            _CHECKPOINTS: checkpoints,
        }
        return arguments

    def _working_folder(self, output_dict: dict[str, list[Any]]) -> str:
        """What outlives a failed attempt: TFX's folder for that, or the ModelRun where nobody takes that away."""
        kept = self._context.stateful_working_dir if self._context else None
        return str(kept or artifact_utils.get_single_uri(output_dict["model_run"]))


def _move(folder: str, target: str) -> None:
    """Moves a folder, also from this disk into an object store."""
    if "://" in target and "://" not in folder:
        io_utils.copy_dir(folder, target)
        fileio.rmtree(folder)
    else:
        fileio.rename(folder, target)


def _plan(input_dict: dict[str, list[Any]], exec_properties: dict[str, Any]) -> TrainingPlan:
    """The plan of the config, with the values that a Tuner has found best, if there was one."""
    plan = TrainingPlan.model_validate_json(_custom_config(exec_properties)["plan"])
    if not input_dict.get("hyperparameters"):
        return plan
    file = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(input_dict["hyperparameters"]))
    values = json.loads(io_utils.read_string_file(file))["values"]
    logging.info("trained with the values that the Tuner has found: %s", values)
    return plan.with_values(values)


def _custom_config(exec_properties: dict[str, Any]) -> dict[str, Any]:
    config = exec_properties["custom_config"]
    return dict(json_utils.loads(config) if isinstance(config, str) else config)


def _digest(plan: TrainingPlan, exec_properties: dict[str, Any]) -> str:
    """A name for everything that a checkpoint depends on, so that none is taken up by another model or schedule."""
    shaping = plan.model_dump(mode="json", include={"features": True, "model": True, "training": set(_SHAPING)})
    told = json.dumps([shaping, _custom_config(exec_properties).get("code")], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]
