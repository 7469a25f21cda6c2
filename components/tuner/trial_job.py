"""A trial as a job of `training.where`: a local process submits and follows the job, and a task of the job trains."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.dsl.io import fileio

from components.base.errors import InputError, MachineError
from components.base.files import is_remote
from components.trainer.plan import TrainingPlan
from components.trainer.remote import job_file
from components.trainer.remote.remote_training import train
from components.tuner.trial_process import Result, Task, format_logs, run_task

if TYPE_CHECKING:
    from components.trainer.remote.config import WhereConfig


def follow_job(task: Task, fn_args: FnArgs, where: WhereConfig, pipeline: str, logs: str, scratch: str) -> Result:
    """Submit the job of a trial, or find the job that an earlier attempt has submitted, and wait until it has ended.

    Args:
      task: What to train.
      fn_args: TFX's FnArgs.
      where: The service, and the resources of the task.
      pipeline: Name of the pipeline, which becomes part of the job's name.
      logs: Path or URI of the folder for the logs of the trials' tasks.
      scratch: Local folder for temporary files.
    """
    format_logs(task)
    folder = f"{task.folder}/{task.pause_at or 'all'}"
    arguments = {
        "trial": task.trial,
        "plan": task.plan.model_dump_json(),
        "folder": task.folder,
        "pause_at": task.pause_at,
        "train_files": list(fn_args.train_files),
        "eval_files": list(fn_args.eval_files),
        "transform_graph": fn_args.transform_graph_path,
        "result": f"{folder}/result.json",
    }
    text = job_file.write_call(f"{__name__}:train_trial", arguments)
    # The log of the task also goes to the log of this node.
    local_logs = Path(scratch if is_remote(logs) else logs, task.trial)
    try:
        train(task.plan.training, where, pipeline, text, folder, local_logs)
    except InputError as error:
        logging.exception("the trial has failed, and other trials would fail as well")
        return Result(error=error)
    except MachineError as error:
        return Result(why=error.headline)
    with fileio.open(arguments["result"]) as file:
        return Result(**json.loads(file.read()))


def train_trial(
    *,
    trial: str,
    plan: str,
    folder: str,
    pause_at: int | None,
    train_files: Sequence[str],
    eval_files: Sequence[str],
    transform_graph: str,
    result: str,
) -> None:
    """Train a part of a trial in a task of a job, and write its result. The job file contains the arguments.

    Args:
      trial: ID of the trial.
      plan: TrainingPlan as JSON.
      folder: Path or URI of the folder with the trial's checkpoints.
      pause_at: See Task.
      train_files: Patterns of the files of the training split.
      eval_files: Patterns of the files of the eval split.
      transform_graph: Path or URI of the transform graph.
      result: Path or URI of the file for the Result as JSON.

    Raises:
      PipelineError: If every trial would fail in the same way.
    """
    files = FnArgs(train_files=train_files, eval_files=eval_files, transform_graph_path=transform_graph)
    task = Task(trial, TrainingPlan.model_validate_json(plan), folder, pause_at)
    with tempfile.TemporaryDirectory() as scratch:
        trained = run_task(task, files, scratch)
    if trained.error is not None:
        raise trained.error
    fields: Mapping[str, Any] = {"loss": trained.loss, "curve": trained.curve, "why": trained.why}
    with fileio.open(result, "w") as file:
        file.write(json.dumps(fields))
