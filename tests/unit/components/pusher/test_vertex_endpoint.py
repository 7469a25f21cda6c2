"""Tests of pushing to Vertex AI: TFX's client uploads and deploys the version, here with a fake library."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from tfx.types import Channel
from tfx.types.standard_artifacts import Model, PushedModel

from components.pusher import bucket_folder
from components.pusher.component import Pusher
from components.pusher.config import PushConfig
from components.pusher.executor import Executor
from components.pusher.plan import PushPlan
from tests.support.fakes.fake_gcs import Bucket, emulate
from tests.support.runs import pushed

SECTION = {
    "directory": "gs://bucket/models/taxi",
    "target": "vertex",
    "vertex": {
        "project": "trips",
        "region": "europe-west4",
        "endpoint": "taxi",
        "traffic_percent": 10,
        "max_replicas": 3,
    },
}


class FakeClientLibrary:
    """A fake of the part of Vertex AI's client library that TFX uses. It records its calls in `calls`."""

    def __init__(self, endpoints: list[str]) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._endpoints = [SimpleNamespace(display_name=name, resource_name=f"endpoints/{name}") for name in endpoints]
        self.Endpoint = SimpleNamespace(list=self._list, create=self._create)
        self.Model = SimpleNamespace(upload=self._upload)

    def init(self, **arguments: Any) -> None:
        self.calls.append(("init", arguments))

    def _list(self, filter: str) -> list[Any]:  # noqa: A002 - the library's name
        return [endpoint for endpoint in self._endpoints if filter == f'display_name="{endpoint.display_name}"']

    def _create(self, display_name: str, **arguments: Any) -> Any:
        self.calls.append(("create", {"display_name": display_name}))
        endpoint = SimpleNamespace(display_name=display_name, resource_name=f"endpoints/{display_name}")
        self._endpoints.append(endpoint)
        return endpoint

    def _upload(self, **arguments: Any) -> Any:
        self.calls.append(("upload", arguments))
        return SimpleNamespace(wait=lambda: None, deploy=self._deploy, resource_name="models/17")

    def _deploy(self, endpoint: Any, **arguments: Any) -> None:
        self.calls.append(("deploy", {"endpoint": endpoint.resource_name, **arguments}))


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore:The 'warn' function is deprecated:DeprecationWarning")
@pytest.mark.parametrize("endpoints", [["other"], ["other", "taxi"]])
def test_version_is_deployed_from_the_push_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoints: list[str]
) -> None:
    # At the top of the module, this import would take 5 CPU seconds in every process that collects the tests.
    from tfx.extensions.google_cloud_ai_platform import prediction_clients

    vertex = FakeClientLibrary(endpoints)
    monkeypatch.setattr(prediction_clients, "aiplatform", vertex)
    monkeypatch.setattr(bucket_folder._BucketStore, "add", lambda *_: (f"{SECTION['directory']}/17", 17))
    (tmp_path / "model" / "Format-Serving").mkdir(parents=True)
    bucket = Bucket()
    version = pushed.push(tmp_path / "versions", 17)
    for file in ("saved_model.pb", "variables/variables.index", "manifest.json"):
        bucket.store(f"models/taxi/17/{file}", (version / file).read_bytes())
    model, result = Model(), PushedModel()
    model.uri, result.uri = str(tmp_path / "model"), str(tmp_path / "out")
    plan = PushPlan(push=PushConfig.model_validate(SECTION), model_name="taxi")
    node = Pusher(plan, "gs://bucket/models/taxi", model=Channel(type=Model))
    with emulate(bucket) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        Executor().Do({"model": [model]}, {"pushed_model": [result]}, node.exec_properties)
    assert json.loads(bucket.objects["models/taxi/registry.json"])["stable"] == 17
    created = [] if "taxi" in endpoints else [("create", {"display_name": "taxi"})]
    assert vertex.calls == [
        ("init", {"project": "trips", "location": "europe-west4"}),
        *created,
        (
            "upload",
            {
                "display_name": "v17",
                "artifact_uri": "gs://bucket/models/taxi/17",
                "serving_container_image_uri": PushConfig.model_validate(SECTION).vertex.image,
            },
        ),
        (
            "deploy",
            {
                "endpoint": "endpoints/taxi",
                "machine_type": "n1-standard-4",
                "min_replica_count": 1,
                "max_replica_count": 3,
                "traffic_percentage": 10,
            },
        ),
    ]
    assert result.get_int_custom_property("pushed") == 1
    assert result.get_string_custom_property("pushed_destination") == "models/17"
    assert result.get_string_custom_property("pushed_version") == "17"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vertex": None}, "expected push.vertex with target: vertex, received none"),
        ({"directory": "/models"}, "expected a gs:// directory with target: vertex, received '/models'"),
        ({"directory": None}, "expected a gs:// directory with target: vertex, received None"),
    ],
)
def test_endpoint_requires_a_bucket(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PushConfig.model_validate({**SECTION, **changes})


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"rollout": {"servers": ["tf:8501"]}},
            "expected grpc_servers on the same hosts as servers, or none; received tf and 127.0.0.1, 127.0.0.1",
        ),
        ({"rollout": {"servers": ["8501"]}}, "expected host:port, received '8501'"),
        ({"rollout": {"listen": "a b:1"}}, "expected host:port, received 'a b:1'"),
        ({"rollout": {"model_name": "a/b"}}, "model_name"),
        ({"keep": 0}, "keep"),
        ({"model_signing": {"private_key_env": "MY KEY"}}, "private_key_env"),  # pragma: allowlist secret
        ({"stage_on_push": "canary"}, "stage_on_push"),
    ],
)
def test_invalid_push_section_is_rejected(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PushConfig.model_validate(section)
