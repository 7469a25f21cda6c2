"""CustomJobs by Google's own client, sent to a fake of the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fake_vertex_api
import pytest
from fake_vertex_api import Api

from components.base.errors import InputError, MachineError
from components.trainer.config import TrainingConfig
from components.trainer.remote import manifests
from components.trainer.remote.config import WhereConfig
from components.trainer.remote.job_status import State
from components.trainer.remote.vertex_jobs import VertexJobs

NAME = "train-taxi-1"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with fake_vertex_api.serve(tmp_path, monkeypatch) as api:
        yield api


def where(api: Api) -> WhereConfig:
    fields = {"kind": "vertex", "image": "registry.example/taxi:1", "project": "mine", "region": "europe-west4"}
    return WhereConfig.model_validate({**fields, "endpoint": api.address, "machine": "n2-standard-4"})


def submitted(api: Api) -> VertexJobs:
    section = where(api)
    jobs = VertexJobs(section)
    job = manifests.Job(NAME, TrainingConfig(), section, "gs://bucket/job.json")
    jobs.submit(manifests.vertex_manifest(job))
    return jobs


def test_job_is_submitted_with_the_machine_of_the_section(api: Api) -> None:
    submitted(api)
    [(_, body)] = api.creations("customJobs")
    assert body["displayName"] == NAME
    [pool] = body["jobSpec"]["workerPoolSpecs"]
    assert pool["machineSpec"] == {"machineType": "n2-standard-4"}


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("JOB_STATE_PENDING", State.WAITING),
        ("JOB_STATE_RUNNING", State.RUNNING),
        ("JOB_STATE_SUCCEEDED", State.SUCCEEDED),
        ("JOB_STATE_FAILED", State.FAILED),
        ("JOB_STATE_CANCELLED", State.FAILED),
    ],
)
def test_state_is_that_of_the_newest_job_of_the_name(api: Api, name: str, state: State) -> None:
    jobs = submitted(api)
    for job in api.jobs.values():
        job["state"] = name
    found = jobs.status(NAME)
    assert found is not None
    assert (found.state, found.tasks) == (state, {"job": name})


def test_no_job_has_no_state(api: Api) -> None:
    assert VertexJobs(where(api)).status(NAME) is None


def test_job_that_runs_is_cancelled_and_one_that_has_ended_deleted(api: Api) -> None:
    jobs = submitted(api)
    jobs.delete(NAME)
    assert [path.rpartition("/")[2] for method, path, _, _ in api.sent if method == "POST"][-1].endswith(":cancel")
    for job in api.jobs.values():
        job["endTime"] = "2026-11-26T00:00:00Z"
    jobs.delete(NAME)
    assert api.jobs == {}


@pytest.mark.parametrize(("status", "error"), [(403, InputError), (400, InputError), (503, MachineError)])
def test_refusal_is_the_users_and_no_answer_is_not(api: Api, status: int, error: type[Exception]) -> None:
    api.refuses = (status, "no such machine type")
    with pytest.raises(error, match="no such machine type"):
        submitted(api)


def test_credentials_are_required(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(InputError, match="expected credentials, received none"):
        VertexJobs(where(api))
