"""Tests of training in a remote job: jobs are submitted, found again, replaced and cancelled.

A job is replaced if it has failed or trains another model.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.base.errors import InputError, MachineError
from components.trainer.config import TrainingConfig
from components.trainer.remote import remote_training
from components.trainer.remote.config import WhereConfig
from components.trainer.remote.job_status import JobStatus, State

WHERE = WhereConfig(kind="jobset", image="registry.example/taxi:1")
TRAINING = TrainingConfig.model_validate({"strategy": {"kind": "multi_worker", "workers": 2}})


class FakeService:
    """A fake job service. Each status request after the submission moves the job to the next state."""

    def __init__(self, states: list[JobStatus | Exception | None]) -> None:
        self.states = iter(states)
        self.job: JobStatus | None = None
        self.done: list[str] = []
        self.manifests: list[dict[str, Any]] = []
        self.on_status: Callable[[], None] = lambda: None
        self.refusals: list[Exception] = []

    def submit(self, manifest: dict[str, Any]) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.done.append("submit")
        self.manifests.append(manifest)
        self.job = JobStatus(State.WAITING)

    def status(self, name: str) -> JobStatus | None:
        self.on_status()
        if self.job is not None and self.job.state not in (State.SUCCEEDED, State.FAILED):
            state = next(self.states)
            if isinstance(state, Exception):
                raise state
            self.job = state
        return self.job

    def delete(self, name: str) -> None:
        self.done.append("delete")
        self.job = None

    def join_logs(self, seconds: float) -> None:
        self.done.append("logs")


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setattr(remote_training, "_POLL_SECONDS", 0.01)

    def call(service: FakeService, text: str = "the job", where: WhereConfig = WHERE) -> int:
        monkeypatch.setattr(remote_training, "_create_service", lambda *_: service)
        return remote_training.train(TRAINING, where, "taxi", text, str(tmp_path), tmp_path / "logs")

    return call


RUNNING = JobStatus(State.RUNNING, tasks={"worker-0": "Running"})
SUCCEEDED = JobStatus(State.SUCCEEDED, restarts=2)


def test_job_is_submitted_followed_and_deleted(train: Callable[..., int], tmp_path: Path) -> None:
    service = FakeService([RUNNING, RUNNING, SUCCEEDED])
    assert train(service) == 2
    assert service.done == ["submit", "logs", "delete"]
    assert (tmp_path / "job.json").read_text() == "the job"
    [manifest] = service.manifests
    assert manifest["metadata"]["name"].startswith("train-taxi-")
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    user = {"runAsUser": os.getuid(), "runAsGroup": os.getgid()}
    assert {name: pod["securityContext"][name] for name in user} == user


def test_job_of_an_earlier_attempt_is_found_again(train: Callable[..., int], tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("the job")
    service = FakeService([RUNNING, SUCCEEDED])
    service.job = RUNNING
    assert train(service) == 2
    assert service.done == ["logs", "delete"]


@pytest.mark.parametrize(
    ("job", "trained"), [(JobStatus(State.FAILED), "the job"), (RUNNING, "another model")], ids=["failed", "another"]
)
def test_failed_job_or_job_of_another_model_is_replaced(
    train: Callable[..., int], tmp_path: Path, job: JobStatus, trained: str
) -> None:
    (tmp_path / "job.json").write_text(trained)
    service = FakeService([RUNNING, RUNNING, SUCCEEDED])
    service.job = job
    assert train(service) == 2
    assert service.done == ["delete", "submit", "logs", "delete"]
    assert (tmp_path / "job.json").read_text() == "the job"


def test_error_in_the_log_of_a_task_is_raised(train: Callable[..., int], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = "E failed\ncomponents.errors.InputError: error[2]: the loss is not finite\n  remedy: lower the rate\n"
    (tmp_path / "logs" / "worker-1.log").write_text(log)
    (tmp_path / "logs" / "evaluator-0.log").write_text("stopped with the others\n")
    failed = JobStatus(State.FAILED, "backoff limit", failed=("evaluator-0", "worker-1"))
    with pytest.raises(InputError, match="the loss is not finite") as raised:
        train(FakeService([failed]))
    assert raised.value.remedy == "lower the rate"


@pytest.mark.parametrize(
    ("failed", "expected"), [(("worker-1",), "worker-1 has failed"), ((), "has failed: backoff limit")]
)
def test_failed_job_is_named_in_the_error_and_not_deleted(
    train: Callable[..., int], tmp_path: Path, failed: tuple[str, ...], expected: str
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-1.log").write_text("the last line\n")
    service = FakeService([JobStatus(State.FAILED, "backoff limit", failed=failed)])
    with pytest.raises(MachineError, match=expected) as raised:
        train(service)
    assert raised.value.details == (("the last line",) if failed else ())
    assert service.done == ["submit", "logs"]


def test_job_that_somebody_deletes_is_an_error(train: Callable[..., int]) -> None:
    with pytest.raises(MachineError, match="it has been deleted"):
        train(FakeService([RUNNING, None]))


def test_service_that_does_not_answer_is_asked_again_for_a_while(
    train: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = MachineError("no answer", "wait")
    assert train(FakeService([RUNNING, lost, lost, SUCCEEDED])) == 2
    service = FakeService([RUNNING, SUCCEEDED])
    service.refusals = [lost]
    assert train(service) == 2
    monkeypatch.setattr(remote_training, "_LOST_SECONDS", 0.0)
    with pytest.raises(MachineError, match="no answer"):
        train(FakeService([RUNNING, lost, lost, SUCCEEDED]))


def test_job_whose_tasks_do_not_start_is_deleted(train: Callable[..., int]) -> None:
    waiting = JobStatus(State.WAITING, tasks={"worker-0": "Pending, Unschedulable: 0/1 nodes"})
    service = FakeService([waiting] * 100)
    with pytest.raises(MachineError, match=r"within 0\.001 minutes, received worker-0: Pending, Unschedulable"):
        train(service, where=WHERE.model_copy(update={"start_minutes": 0.001}))
    assert service.done == ["submit", "delete"]


def test_time_in_a_queue_does_not_count(train: Callable[..., int], caplog: pytest.LogCaptureFixture) -> None:
    queued, waiting = JobStatus(State.QUEUED), JobStatus(State.WAITING)
    where = WHERE.model_copy(update={"start_minutes": 0.1 / 60})
    with caplog.at_level("INFO"):
        # 30 requests, 10 ms apart, are longer than the limit of 0.1 s.
        assert train(FakeService([queued] * 30 + [waiting, RUNNING, SUCCEEDED]), where=where) == 2
    assert [message.partition(" is ")[2] for message in caplog.messages if "queued" in message] == ["queued"]


def test_objects_of_a_job_are_created_before_it(train: Callable[..., int]) -> None:
    service = FakeService([RUNNING, SUCCEEDED])
    assert train(service, where=WHERE.model_copy(update={"kind": "trainjob", "isolated": True})) == 2
    kinds = [manifest["kind"] for manifest in service.manifests]
    assert kinds == ["TrainingRuntime", "NetworkPolicy", "TrainJob"]


def test_sigterm_deletes_the_job(train: Callable[..., int]) -> None:
    service = FakeService([RUNNING] * 100)
    service.on_status = lambda: os.kill(os.getpid(), signal.SIGTERM) if service.done else None
    with pytest.raises(MachineError, match="stopped by SIGTERM"):
        train(service)
    assert service.done == ["submit", "delete"]


def test_model_of_another_tensorflow_version_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path))
    caplog.clear()
    written = tf.__version__
    remote_training.warn_of_other_version(str(tmp_path))
    assert not caplog.messages
    monkeypatch.setattr(tf, "__version__", "2.99.0")
    remote_training.warn_of_other_version(str(tmp_path))
    [message] = caplog.messages
    assert f"has TensorFlow {written} and this run 2.99.0" in message
