"""Tests for the spec for Vertex AI Pipelines, its warnings, and configs that are rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from components.base.errors import InputError
from pipeline.authoring.config import Config, load
from pipeline.orchestration import vertex
from tests.support.data import people

pytestmark = pytest.mark.both_lines

SECTION: dict[str, Any] = {
    "project": "mine",
    "region": "europe-west4",
    "image": "an/image:1",
    "root": "gs://bucket/people",
}


def load_config(folder: Path, *assignments: str, **sections: Any) -> Config:
    data = people.write(folder / "people.csv", people.rows(50))
    file = people.write_config(folder / "people.yaml", data, **{"vertex": SECTION, **sections})
    return load(str(file), [f"runtime.output={folder / 'out'}", *assignments]).config


def write_spec(folder: Path, config: Config) -> tuple[Any, Any]:
    """Write the spec to a file and parse it. Fields that the messages do not define cause an error.

    Returns:
      The PipelineSpec, and its deployment spec as a PipelineDeploymentConfig.
    """
    file = folder / "specs" / "people.yaml"
    warnings = vertex.write(config, file)
    document = yaml.safe_load(file.read_text())
    assert document == warnings
    spec = json_format.ParseDict(document, pipeline_spec_pb2.PipelineSpec())
    return spec, json_format.ParseDict(document["deploymentSpec"], pipeline_spec_pb2.PipelineDeploymentConfig())


def test_spec_contains_the_tasks_with_their_settings(tmp_path: Path):
    (tmp_path / "people.pbtxt").write_text(people.SCHEMA)
    resources = {"Trainer": {"cpu": 8, "memory_gb": 32, "accelerator": "NVIDIA_L4", "accelerators": 2}}
    config = load_config(
        tmp_path,
        vertex={**SECTION, "resources": {**resources, "ExampleGen": {"cpu": 4}}},
        schema={"path": str(tmp_path / "people.pbtxt")},
        schedule={"start": "2026-01-01", "retries": 3, "retry_minutes": 0.5},
    )
    spec, deployment = write_spec(tmp_path, config)
    assert (spec.pipeline_info.name, spec.schema_version, spec.default_pipeline_root) == (
        "people",
        "2.1.0",
        "gs://bucket/people",
    )
    tasks, executors = spec.root.dag.tasks, deployment.executors
    containers = {name for name in tasks if executors[f"{name}_executor"].HasField("container")}
    lookups = {f"LatestBlessedModel-model{part}-resolver" for part in ("", "-blessing")}
    assert set(tasks) - containers == lookups
    assert "DataGate" in tasks["Transform"].dependent_tasks, "nothing is transformed before the gate has passed"
    for name in containers:
        container, task = executors[f"{name}_executor"].container, tasks[name]
        assert (container.image, list(container.command)[:3]) == (
            "an/image:1",
            ["python", "-m", "pipeline.orchestration.vertex_entrypoint"],
        )
        assert list(container.command)[3:] == ["execute", "people"]
        assert task.caching_options.enable_cache
        assert (task.retry_policy.max_retry_count, task.retry_policy.backoff_duration.seconds) == (3, 30)
    trainer, reader = executors["Trainer_executor"].container, executors["ExampleGen_executor"].container
    assert (trainer.resources.cpu_limit, trainer.resources.memory_limit) == (8, 32)
    assert (trainer.resources.accelerator.type, trainer.resources.accelerator.count) == ("NVIDIA_L4", 2)
    assert reader.resources.cpu_limit == 4
    hook = reader.lifecycle.pre_cache_check
    assert list(hook.command) == ["python", "-m", "pipeline.orchestration.vertex_entrypoint", "drive", "people"]
    assert list(hook.args)[:2] == ["--executor_class_path", "components.ingest.driver.Driver"]
    # The rows are the only files on this machine that the spec mentions.
    values = {
        (name, key): parameter.runtime_value.constant.string_value
        for name, task in tasks.items()
        for key, parameter in task.inputs.parameters.items()
    }
    assert {key for key, value in values.items() if str(tmp_path) in value} == {
        ("ExampleGen", "input_base"),
        ("DataGate", "plan"),
    }
    assert values["SchemaGen", "text"] == people.SCHEMA
    assert (
        json.loads(values["Pusher", "push_destination"])["filesystem"]["base_directory"] == "gs://bucket/people/pushed"
    )


def test_variants_for_small_devices_are_created_before_the_push(tmp_path: Path):
    spec, _ = write_spec(tmp_path, load_config(tmp_path, "edge=[{quantize: dynamic}]"))
    assert "EdgeExporter" in spec.root.dag.tasks["Pusher"].dependent_tasks


def test_cache_and_retries_can_be_turned_off(tmp_path: Path):
    spec, _ = write_spec(tmp_path, load_config(tmp_path, "runtime.cache=false", "training.warm_start=true"))
    tasks = spec.root.dag.tasks.values()
    assert not any(task.caching_options.enable_cache or task.HasField("retry_policy") for task in tasks)
    assert {"BaseModel-model-resolver", "LatestBlessedModel-model-resolver", "SchemaGen"} <= set(spec.root.dag.tasks)


def test_driver_of_a_query_runs_before_the_cache_check(tmp_path: Path):
    query = {"path": [], "bigquery": {"query": "SELECT * FROM people"}, "label": people.CONFIG["data"]["label"]}
    _, deployment = write_spec(tmp_path, load_config(tmp_path, data=query))
    hook = deployment.executors["ExampleGen_executor"].container.lifecycle.pre_cache_check
    assert list(hook.args)[:2] == ["--executor_class_path", "tfx.components.example_gen.driver.QueryBasedDriver"]


@pytest.mark.parametrize(
    ("assignment", "message", "remedy"),
    [
        ("pipeline.name=my_people", "received my_people", "pipeline.name=my-people"),
        ("pipeline.name=2people", "received 2people", "pipeline.name=people"),
        ("serving.check=docker", "expected server on Vertex AI", "serving.check=server"),
        ("push.approval=required", "expected none on Vertex AI", "push.approval=none"),
        ("predict={path: new.csv}", "have no driver", "runner.py predict"),
        ("vertex=null", "expected a section vertex", "docs/how-to/vertex.md"),
    ],
)
def test_unsupported_config_is_rejected(tmp_path: Path, assignment: str, message: str, remedy: str):
    with pytest.raises(InputError, match=message) as raised:
        vertex.check(load_config(tmp_path, assignment))
    assert remedy in raised.value.remedy


def test_file_must_be_yaml_and_writable(tmp_path: Path):
    config = load_config(tmp_path)
    with pytest.raises(InputError, match=r"expected FILE\.yaml, received .*people\.json"):
        vertex.write(config, tmp_path / "people.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        vertex.write(config, tmp_path / "file" / "people.yaml")


def test_too_large_schema_is_rejected(tmp_path: Path):
    more = "".join(f'feature {{ name: "column_{number}" type: INT }}\n' for number in range(3000))
    (tmp_path / "people.pbtxt").write_text(people.SCHEMA + more)
    config = load_config(tmp_path, schema={"path": str(tmp_path / "people.pbtxt")})
    with pytest.raises(
        InputError, match=r"SchemaGen: expected at most 100 KiB .*, received \d+ KiB; the largest is text"
    ):
        vertex.write(config, tmp_path / "people.yaml")


def test_paths_and_addresses_of_this_machine_are_reported(tmp_path: Path):
    warnings = vertex.list_warnings(
        load_config(
            tmp_path,
            "push.directory=models",
            "model={build: mine/network.py}",
            "runtime.engine=portable",
            "runtime.portable={job_endpoint: 'localhost:8099'}",
        )
    )
    fields = [line.partition(": ")[0] for line in warnings]
    assert fields == ["data.path", "push.directory", "model.build", "runtime.engine"]
    assert "mine/network.py:build is on this machine" in warnings[2]


def test_paths_that_containers_see_are_not_reported(tmp_path: Path):
    remote = {"data": {**people.CONFIG["data"], "path": ["gs://bucket/rows.csv", "/gcs/bucket/rows.csv"]}}
    assert vertex.list_warnings(load_config(tmp_path, "push.directory=/gcs/bucket/models", **remote)) == []


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("root=/tmp/people", "gs://"),
        ("region=Europe", "expected a text that matches"),
        ("network=mine", "expected a text that matches"),
        ("endpoint=localhost", "expected a text that matches"),
        ("labels={Team: rides}", "expected small letters"),
        ("resources={Traner: {cpu: 4}}", "did you mean 'Trainer'"),
        ("resources={BaseModel: {cpu: 4}}", "expected a node with a container, received 'BaseModel'"),
        ("resources={Trainer: {accelerators: 3}}", "expected one of 1, 2, 4, 8, 16"),
    ],
)
def test_invalid_section_is_rejected(tmp_path: Path, field: str, message: str):
    with pytest.raises(InputError, match=message):
        load_config(tmp_path, f"vertex.{field}")
