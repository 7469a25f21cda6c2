"""Tests of Vertex AI CustomJobs, with the official client and a fake API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from components.base.errors import InputError, MachineError
from components.trainer.config import TrainingConfig
from components.trainer.remote import manifests
from components.trainer.remote.config import WhereConfig
from components.trainer.remote.job_status import State
from components.trainer.remote.vertex_jobs import VertexJobs
from tests.support.fakes import fake_vertex_api
from tests.support.fakes.fake_vertex_api import Api

NAME = "train-taxi-1"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with fake_vertex_api.serve(tmp_path, monkeypatch) as api:
        yield api


def where(api: Api) -> WhereConfig:
    fields = {"kind": "vertex", "image": "registry.example/taxi:1", "project": "mine", "region": "europe-west4"}
    return WhereConfig.model_validate({**fields, "endpoint": api.address, "machine": "n2-standard-4"})


def submit_job(api: Api) -> VertexJobs:
    section = where(api)
    jobs = VertexJobs(section)
    job = manifests.Job(NAME, TrainingConfig(), section, "gs://bucket/job.json")
    jobs.submit(manifests.vertex_manifest(job))
    return jobs


def test_job_is_submitted_with_the_machine_of_the_section(api: Api) -> None:
    submit_job(api)
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
def test_state_of_the_newest_job_with_the_name_is_returned(api: Api, name: str, state: State) -> None:
    jobs = submit_job(api)
    for job in api.jobs.values():
        job["state"] = name
    status = jobs.status(NAME)
    assert status is not None
    assert (status.state, status.tasks) == (state, {"job": name})


def test_status_of_an_unknown_job_is_none(api: Api) -> None:
    assert VertexJobs(where(api)).status(NAME) is None


def test_running_job_is_cancelled_and_ended_job_is_deleted(api: Api) -> None:
    jobs = submit_job(api)
    jobs.delete(NAME)
    assert [path.rpartition("/")[2] for method, path, _, _ in api.sent if method == "POST"][-1].endswith(":cancel")
    for job in api.jobs.values():
        job["endTime"] = "2026-11-26T00:00:00Z"
    jobs.delete(NAME)
    assert api.jobs == {}


@pytest.mark.parametrize(("status", "error"), [(403, InputError), (400, InputError), (503, MachineError)])
def test_refusal_is_an_input_error_and_an_unavailable_service_is_a_machine_error(
    api: Api, status: int, error: type[Exception]
) -> None:
    api.refuses = (status, "no such machine type")
    with pytest.raises(error, match="no such machine type"):
        submit_job(api)


def test_credentials_are_required(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(InputError, match="expected credentials, received none"):
        VertexJobs(where(api))
