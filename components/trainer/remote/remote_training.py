"""The Trainer's part in a training that runs as a job elsewhere: it submits the job, or finds it again, and follows it.

The job writes to a folder that outlives a failed attempt of the Trainer, and its name is derived from that folder. So a
new attempt finds the job of the previous attempt:

    no job of this name   submit it
    it runs               follow it
    it has succeeded      collect its model
    it has failed, or     delete it, and submit it again: it continues from its checkpoints
    trains another model
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tfx.dsl.io import fileio

from components.base import errors
from components.base.errors import MachineError, PipelineError
from components.base.files import is_remote
from components.trainer.config import TrainingConfig
from components.trainer.preemption import PreemptionFlag
from components.trainer.remote import manifests
from components.trainer.remote.config import WhereConfig
from components.trainer.remote.job_status import JobStatus, State
from components.trainer.remote.manifests import Job

_POLL_SECONDS = 1.0
_LOST_SECONDS = 600.0
"""How long the service may fail to answer."""
T = TypeVar("T")
_LOG_SECONDS = 10.0
_LOG_TAIL = 1 << 16
_TAIL_LINES = 10


class Service(Protocol):
    """A service that runs jobs; see KubernetesJobs."""

    def submit(self, manifest: dict[str, Any]) -> None:
        """Create a job, or an object that belongs to it."""

    def status(self, name: str) -> JobStatus | None:
        """Return the status of a job; None if it does not exist."""

    def delete(self, name: str) -> None:
        """Delete a job with its tasks, and the objects that belong to it."""

    def join_logs(self, seconds: float) -> None:
        """Wait until the logs of ended tasks are complete."""


def train(training: TrainingConfig, where: WhereConfig, pipeline: str, text: str, folder: str, logs: Path) -> int:
    """Train in a job, and wait until it has succeeded.

    Args:
      training: The strategy, which determines the tasks, and the number of restarts.
      where: The service, and the resources of its tasks.
      pipeline: Name of the pipeline, which becomes part of the job's name.
      text: Content of the job file.
      folder: Path or URI for the job file; the same for all attempts of a run.
      logs: Local folder for the logs of the tasks.

    Returns:
      How often the service has restarted the job.

    Raises:
      PipelineError: If the job has failed, with the error of a failed task if one is known; if the service refuses it,
        or has not answered for some time; or if this process received SIGTERM, and the job is deleted.
    """
    name = manifests.create_name(pipeline, f"-{hashlib.sha256(folder.encode()).hexdigest()[:8]}")
    file = f"{folder}/job.json"
    lead, *_ = manifests.tasks(training)
    logs.mkdir(parents=True, exist_ok=True)
    if where.kind == "tfjob":
        logging.warning("training.where.kind: tfjob is legacy; Kubeflow Trainer v2 runs jobset and trainjob")
    service = _create_service(where, logs, f"{lead}-0")
    # Files that the tasks write to a volume must belong to this process's user.
    user = None if is_remote(folder) else (os.getuid(), os.getgid())
    job = Job(name, training, where, file, user)
    with PreemptionFlag() as stop:
        try:
            _submit(service, job, manifests.MANIFESTS[where.kind](job), text, stop)
            status = _follow(service, job, where.start_minutes, stop)
            service.join_logs(_LOG_SECONDS)
            if status.state is State.FAILED:
                raise _find_failure(name, status, logs)
            _answer(lambda: service.delete(name), stop)
        except _NotWantedError:
            service.delete(name)
            raise
    logging.info("job %s has succeeded", name)
    return status.restarts


def warn_of_other_version(model: str) -> None:
    """Warn if a model was written by another version of TensorFlow than the run's, because the tasks use another image.

    Args:
      model: Folder of a SavedModel.
    """
    with fileio.open(f"{model}/saved_model.pb", "rb") as file:
        [graph, *_] = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    if (written := graph.meta_info_def.tensorflow_version) != tf.__version__:
        logging.warning(
            "the image of training.where has TensorFlow %s and this run %s: its Evaluator and serving check may not "
            "load the model; build the image from the run's version of the project",
            written,
            tf.__version__,
        )


class _NotWantedError(MachineError):
    """The run has been stopped, or the job will not start."""


def _create_service(where: WhereConfig, logs: Path, lead: str) -> Service:
    # The clients of the services take a second to import.
    if where.kind != "vertex":
        from components.trainer.remote.kubernetes_jobs import KubernetesJobs

        return KubernetesJobs(where, logs, lead)
    from components.trainer.remote.vertex_jobs import VertexJobs

    return VertexJobs(where)


def _submit(service: Service, job: Job, manifest: dict[str, Any], text: str, stop: PreemptionFlag) -> None:
    """Submit the job, unless the job of an earlier attempt trains the same model and has not failed."""
    status = _answer(lambda: service.status(job.name), stop)
    if status is not None and status.state is not State.FAILED and _read(job.file) == text:
        logging.info("job %s of an earlier attempt is found again: %s", job.name, status.state.value)
        return
    while status is not None:
        service.delete(job.name)
        _wait(stop)
        status = _answer(lambda: service.status(job.name), stop)
    fileio.makedirs(job.file.rpartition("/")[0])
    with fileio.open(job.file, "w") as file:
        file.write(text)
    for companion in manifests.companion_manifests(job):
        _answer(functools.partial(service.submit, companion), stop)
    _answer(lambda: service.submit(manifest), stop)
    logging.info("job %s is submitted", job.name)


def _follow(service: Service, job: Job, start_minutes: float, stop: PreemptionFlag) -> JobStatus:
    """Return the status of a job when it has ended."""
    started = time.monotonic()
    tasks: dict[str, str] = {}
    state = State.WAITING
    while True:
        _wait(stop)
        status = _answer(lambda: service.status(job.name), stop)
        if status is None:
            return JobStatus(State.FAILED, "it has been deleted")
        for task, phase in status.tasks.items():
            if tasks.get(task) != phase:
                logging.info("job %s: %s: %s", job.name, task, phase)
        tasks = dict(status.tasks)
        if State.QUEUED in (status.state, state) and status.state is not state:
            logging.info("job %s is %s", job.name, status.state.value)
        state = status.state
        if status.state in (State.SUCCEEDED, State.FAILED):
            return status
        if status.state is State.QUEUED:
            # The limit is for machines and images, which a queued job does not have yet.
            started = time.monotonic()
        if status.state is State.WAITING and time.monotonic() - started > start_minutes * 60:
            waiting = "; ".join(f"{task}: {phase}" for task, phase in tasks.items()) or "no task exists"
            raise _NotWantedError(
                f"job {job.name}: expected a task to start within {start_minutes:g} minutes, received {waiting}",
                "see why in the cluster, or raise training.where.start_minutes",
            )


def _answer(request: Callable[[], T], stop: PreemptionFlag) -> T:
    """Send a request until the service answers, and return the answer; the job continues meanwhile."""
    first = time.monotonic()
    while True:
        try:
            return request()
        except MachineError as error:
            if time.monotonic() - first > _LOST_SECONDS:
                raise
            logging.warning("%s", error.headline)
        _wait(stop)


def _wait(stop: PreemptionFlag) -> None:
    """Wait for the next request, or raise the error of a run that is stopped."""
    time.sleep(_POLL_SECONDS)
    if stop.is_set():
        raise _NotWantedError(
            "training was stopped by SIGTERM", "--resume the run: it continues from the last checkpoint"
        )


def _read(file: str) -> str | None:
    if not fileio.exists(file):
        return None
    with fileio.open(file) as opened:
        return str(opened.read())


def _find_failure(name: str, status: JobStatus, logs: Path) -> PipelineError:
    """Return the error in the log of a failed task, which also makes other tasks fail, or the end of the first log."""
    remedy = f"see the logs of its tasks in {logs}; --resume the run: it continues from the last checkpoint"
    tails = {task: _read_tail(logs / f"{task}.log") for task in status.failed}
    for tail in tails.values():
        if error := errors.find(RuntimeError(tail)):
            return error
    if tails:
        task, tail = next(iter(tails.items()))
        return MachineError(f"job {name}: {task} has failed", remedy, tail.splitlines()[-_TAIL_LINES:])
    return MachineError(f"job {name} has failed: {status.message}", remedy)


def _read_tail(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
        return file.read().decode(errors="replace")
