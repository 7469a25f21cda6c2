"""Searches of a Tuner, run as its node runs them. TFX is imported inside the functions, which tests call in a child."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from components.base import errors
from tests.support.runs.command import ROOT
from tests.support.runs.trainer_runs import Prepared, artifact, inputs_of, plan_of


def tune(
    prepared: Prepared,
    folder: Path,
    training: dict[str, Any],
    tune: dict[str, Any],
    stop_at: int = 0,
    model: dict[str, Any] | None = None,
) -> Any:
    """Run the Tuner's executor in this process.

    Args:
      prepared: Input of the search.
      folder: Folder for its outputs; empty, or the folder of an earlier attempt.
      training: fields of the training section.
      tune: the `tune` section.
      stop_at: Number of the trial at whose start this process receives SIGTERM, or 0 for no signal.
      model: Fields of the model section that replace the fields in `prepared`.

    Returns:
      The contents of trials.json and of TFX's tuner_results.json, and the best values.
    """
    from tfx.dsl.components.base.base_executor import BaseExecutor
    from tfx.types.standard_artifacts import HyperParameters, TunerResults

    from components.tuner import search
    from components.tuner.config import TuneConfig
    from components.tuner.executor import Executor
    from components.tuner.plan import tuning_plan

    outputs = {
        "best_hyperparameters": artifact(HyperParameters, str(folder / "best")),
        "tuner_results": artifact(TunerResults, str(folder / "results")),
    }
    for name in ("best", "results", "work"):
        (folder / name).mkdir(exist_ok=True, parents=True)
    plan = tuning_plan(plan_of(prepared, training, model), TuneConfig.model_validate(tune))
    properties = {
        "tuner_fn": search.PATH,
        "train_args": "{}",
        "eval_args": "{}",
        "custom_config": json.dumps({"plan": plan.model_dump_json(), "code": "of the test"}),
    }
    if stop_at:
        _stop_at(stop_at)
    context = BaseExecutor.Context(stateful_working_dir=str(folder / "work"))
    Executor(context).Do(inputs_of(prepared), outputs, properties)
    [best] = (folder / "best").iterdir()
    return (
        json.loads((folder / "results" / "trials.json").read_text()),
        json.loads((folder / "results" / "tuner_results.json").read_text()),
        json.loads(best.read_text())["values"],
    )


def _stop_at(number: int) -> None:
    """Send this process SIGTERM when a trial has begun."""
    from components.tuner.trial_process import TrialProcess

    original, begun = TrialProcess.__init__, []

    def start(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        begun.append(self)
        if len(begun) == number:
            os.kill(os.getpid(), signal.SIGTERM)

    TrialProcess.__init__ = start


def tune_and_die(
    prepared: Prepared, folder: Path, training: dict[str, Any], section: dict[str, Any], event: str, number: int
) -> Any:
    """Run a search whose node is killed by SIGKILL.

    Args:
      prepared: See `tune`.
      folder: See `tune`.
      training: See `tune`.
      section: the `tune` section.
      event: `saved`: after the state was written; `saving`: before; `step`: while a trial trains, after a checkpoint.
      number: Number of the event, counted from 1.
    """
    from components.base import files
    from components.trainer.early_stopping import EarlyStopping

    # TFX reloads the module of the search, which then imports the function below.
    target, name = (EarlyStopping, "update") if event == "step" else (files, "write_atomically")
    original, node, counter = getattr(target, name), os.getpid(), folder / "events"
    counter.parent.mkdir(exist_ok=True, parents=True)
    counter.touch()

    def call(*arguments: Any) -> Any:
        result = None if event == "saving" else original(*arguments)
        with counter.open("a") as file:
            file.write(".")
        if counter.stat().st_size == number:
            os.kill(node, signal.SIGKILL)
        return original(*arguments) if event == "saving" else result

    setattr(target, name, call)
    return tune(prepared, folder, training, section)


class LocalService:
    """A service that runs the command of a job's only task in a process of this machine.

    Args:
      folder: Folder for the manifests.
      logs: Folder for the log of the task.
    """

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder, self._logs = folder, logs
        self._process: subprocess.Popen[bytes] | None = None

    def submit(self, manifest: dict[str, Any]) -> None:
        """Start the task."""
        name = manifest["metadata"]["name"]
        (self._folder / f"{name}.json").write_text(json.dumps(manifest))
        [replicated] = manifest["spec"]["replicatedJobs"]
        [container] = replicated["template"]["spec"]["template"]["spec"]["containers"]
        _, *arguments = container["command"]
        with (self._logs / "worker-0.log").open("ab") as log:
            self._process = subprocess.Popen([sys.executable, *arguments], stdout=log, stderr=log, cwd=ROOT)

    def status(self, name: str) -> Any:
        """Return whether the task runs, has succeeded or has failed; None before it was started."""
        from components.trainer.remote.job_status import JobStatus, State

        if self._process is None:
            return None
        code = self._process.poll()
        state = State.RUNNING if code is None else State.FAILED if code else State.SUCCEEDED
        return JobStatus(state, tasks={"worker-0": state.value}, failed=("worker-0",) if code else ())

    def delete(self, name: str) -> None:
        """End the task."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def join_logs(self, seconds: float) -> None:
        """Do nothing: the log is complete when the process has ended."""


def tune_in_jobs(prepared: Prepared, folder: Path, training: dict[str, Any], section: dict[str, Any]) -> Any:
    """Run a search whose trials are jobs of a LocalService."""
    from components.trainer.remote import remote_training

    (folder / "manifests").mkdir(parents=True)
    remote_training._create_service = lambda where, logs, lead: LocalService(folder / "manifests", logs)
    where = {"kind": "jobset", "image": "registry.example/people:1"}
    return tune(prepared, folder, {**training, "where": where, "max_restarts": 2}, section)


def without_a_disk(prepared: Prepared, folder: Path, training: dict[str, Any], section: dict[str, Any]) -> Any:
    """Run a search whose trials fail with a full disk; return the error."""
    from components.trainer.training import Training

    def fit(self: Any, *arguments: Any) -> None:
        raise OSError("No space left on device")

    Training.fit = fit
    try:
        tune(prepared, folder, training, section)
    except Exception as error:
        return errors.find(error)


def tune_with_kills(
    prepared: Prepared, folder: Path, training: dict[str, Any], section: dict[str, Any], always: float, once: float
) -> Any:
    """Run a search in which the processes of the trials with two learning rates are killed, those of one only once."""
    from components.trainer.training import Training

    original = Training.fit

    def fit(self: Any, *arguments: Any) -> None:
        rate = self._plan.training.learning_rate
        if rate == always or (rate == once and not (folder / "killed").exists()):
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, *arguments)

    Training.fit = fit
    return tune(prepared, folder, training, section)
