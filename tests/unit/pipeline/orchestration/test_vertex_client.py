"""Tests for the requests that create runs and schedules on Vertex AI, with a fake of its REST API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import InputError, MachineError
from pipeline.authoring.config import Config, load
from pipeline.orchestration.vertex_client import submit
from tests.support.data import people
from tests.support.fakes.fake_vertex_api import Api, serve

pytestmark = pytest.mark.both_lines

SPEC = {"pipelineInfo": {"name": "people"}, "schemaVersion": "2.1.0", "root": {"dag": {"tasks": {}}}}
PARENT = "projects/mine/locations/europe-west4"
ACCOUNT = "runner@mine.iam.gserviceaccount.com"
NETWORK = "projects/12345/global/networks/mine"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serve(tmp_path, monkeypatch) as started:
        yield started


def load_config(folder: Path, endpoint: str, **sections: Any) -> Config:
    vertex = {
        "project": "mine",
        "region": "europe-west4",
        "image": "an/image:1",
        "root": "gs://bucket/people",
        "service_account": ACCOUNT,
        "network": NETWORK,
        "labels": {"team": "rides"},
        "endpoint": endpoint,
    }
    data = people.write(folder / "people.csv", people.rows(20))
    return load(str(people.write_config(folder / "people.yaml", data, vertex=vertex, **sections))).config


def test_run_is_submitted_as_a_pipeline_job(api: Api, tmp_path: Path):
    [line] = submit(load_config(tmp_path, api.address), SPEC)
    [(query, job)] = api.creations("pipelineJobs")
    assert re.fullmatch(r"people-\d{14}", query["pipelineJobId"])
    assert job == {
        "displayName": "people",
        "pipelineSpec": SPEC,
        "labels": {"team": "rides"},
        "runtimeConfig": {"gcsOutputDirectory": "gs://bucket/people"},
        "serviceAccount": ACCOUNT,
        "network": NETWORK,
    }
    assert f"/pipelines/runs/{query['pipelineJobId']}?project=mine" in line
    assert [path for method, path, _, _ in api.sent if path != "/token"] == [f"/v1/{PARENT}/pipelineJobs"]


def test_schedule_replaces_the_previous_schedule(api: Api, tmp_path: Path):
    schedule = {"start": "2999-02-03", "every": "@weekly"}
    [first] = submit(load_config(tmp_path, api.address, schedule=schedule), SPEC)
    [earlier] = api.schedules
    [second] = submit(load_config(tmp_path, api.address, schedule={"start": "2020-01-01", "every": "5 4 * * *"}), SPEC)
    [current] = api.schedules
    assert current != earlier
    assert ("instead" in first, "instead of 1 earlier" in second) == (False, True)
    (_, weekly), (_, daily) = api.creations("schedules")
    assert (weekly["cron"], weekly["startTime"]) == ("0 0 * * 0", "2999-02-03T00:00:00Z")
    # The service would reject a start time in the past.
    assert (daily["cron"], "startTime" in daily) == ("5 4 * * *", False)
    assert (daily["maxConcurrentRunCount"], daily["maxConcurrentActiveRunCount"]) == ("1", "1")
    request = daily["createPipelineJobRequest"]
    assert (request["parent"], request["pipelineJob"]["serviceAccount"]) == (PARENT, ACCOUNT)
    assert request["pipelineJob"]["pipelineSpec"] == SPEC
    assert request["pipelineJob"]["runtimeConfig"] == {"gcsOutputDirectory": "gs://bucket/people"}
    assert [query["filter"] for method, _, query, _ in api.sent if method == "GET"] == ['display_name="people"'] * 2
    assert not api.creations("pipelineJobs")


def test_previous_schedule_is_kept_if_the_new_schedule_is_rejected(api: Api, tmp_path: Path):
    config = load_config(tmp_path, api.address, schedule={"start": "2026-01-01"})
    submit(config, SPEC)
    before = dict(api.schedules)
    api.refuses = (403, "Permission 'aiplatform.schedules.create' denied")
    with pytest.raises(InputError, match=r"refuses the request with 403.*schedules\.create") as raised:
        submit(config, SPEC)
    assert "service_account" in raised.value.remedy
    assert api.schedules == before


def test_schedule_fields_without_effect_are_reported(api: Api, tmp_path: Path):
    path = {"data": {**people.CONFIG["data"], "path": str(tmp_path / "{SPAN}" / "people.csv")}}
    schedule = {"start": "2026-01-01", "catch_up": True, "only_if": "new_span"}
    _, catch_up, only_if = submit(load_config(tmp_path, api.address, schedule=schedule, **path), SPEC)
    assert "skips earlier days" in catch_up
    assert "come from its cache" in only_if
    request_count = len(api.sent)
    by_days = load_config(tmp_path, api.address, schedule={"start": "2026-01-01", "span": "date"}, **path)
    with pytest.raises(InputError, match=r"schedule\.span: expected newest"):
        submit(by_days, SPEC)
    assert len(api.sent) == request_count


def test_missing_server_and_missing_credentials_are_reported(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(MachineError, match="Vertex AI does not answer"):
        submit(load_config(tmp_path, "http://127.0.0.1:1"), SPEC)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    with pytest.raises(InputError, match="expected credentials") as raised:
        submit(load_config(tmp_path, api.address), SPEC)
    assert "gcloud auth" in raised.value.remedy
