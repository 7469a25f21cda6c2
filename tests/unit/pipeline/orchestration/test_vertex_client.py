"""What is sent to Vertex AI for a run and for a schedule, checked with a fake of its REST API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import people
import pytest
from fake_vertex_api import Api, serve

from components.base.errors import InputError, MachineError
from pipeline.authoring.config import Config, load
from pipeline.orchestration.vertex_client import submit

pytestmark = pytest.mark.both_lines

SPEC = {"pipelineInfo": {"name": "people"}, "schemaVersion": "2.1.0", "root": {"dag": {"tasks": {}}}}
PARENT = "projects/mine/locations/europe-west4"
ACCOUNT = "runner@mine.iam.gserviceaccount.com"
NETWORK = "projects/12345/global/networks/mine"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serve(tmp_path, monkeypatch) as started:
        yield started


def config_of(folder: Path, endpoint: str, **sections: Any) -> Config:
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


def test_run(api: Api, tmp_path: Path):
    [line] = submit(config_of(tmp_path, api.address), SPEC)
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


def test_schedule_takes_the_place_of_the_one_before(api: Api, tmp_path: Path):
    schedule = {"start": "2999-02-03", "every": "@weekly"}
    [first] = submit(config_of(tmp_path, api.address, schedule=schedule), SPEC)
    [earlier] = api.schedules
    [second] = submit(config_of(tmp_path, api.address, schedule={"start": "2020-01-01", "every": "5 4 * * *"}), SPEC)
    [now] = api.schedules
    assert now != earlier
    assert ("instead" in first, "instead of 1 earlier" in second) == (False, True)
    (_, one), (_, other) = api.creations("schedules")
    assert (one["cron"], one["startTime"]) == ("0 0 * * 0", "2999-02-03T00:00:00Z")
    # One that lies behind is none that the service would take.
    assert (other["cron"], "startTime" in other) == ("5 4 * * *", False)
    assert (other["maxConcurrentRunCount"], other["maxConcurrentActiveRunCount"]) == ("1", "1")
    request = other["createPipelineJobRequest"]
    assert (request["parent"], request["pipelineJob"]["serviceAccount"]) == (PARENT, ACCOUNT)
    assert request["pipelineJob"]["pipelineSpec"] == SPEC
    assert request["pipelineJob"]["runtimeConfig"] == {"gcsOutputDirectory": "gs://bucket/people"}
    assert [query["filter"] for method, _, query, _ in api.sent if method == "GET"] == ['display_name="people"'] * 2
    assert not api.creations("pipelineJobs")


def test_rejected_schedule_keeps_the_former_one(api: Api, tmp_path: Path):
    config = config_of(tmp_path, api.address, schedule={"start": "2026-01-01"})
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
    _, catch_up, only_if = submit(config_of(tmp_path, api.address, schedule=schedule, **path), SPEC)
    assert "skips earlier days" in catch_up
    assert "come from its cache" in only_if
    sent = len(api.sent)
    by_days = config_of(tmp_path, api.address, schedule={"start": "2026-01-01", "span": "date"}, **path)
    with pytest.raises(InputError, match=r"schedule\.span: expected newest"):
        submit(by_days, SPEC)
    assert len(api.sent) == sent


def test_missing_server_and_missing_credentials_are_reported(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(MachineError, match="Vertex AI does not answer"):
        submit(config_of(tmp_path, "http://127.0.0.1:1"), SPEC)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    with pytest.raises(InputError, match="expected credentials") as raised:
        submit(config_of(tmp_path, api.address), SPEC)
    assert "gcloud auth" in raised.value.remedy
