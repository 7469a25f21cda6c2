"""Tests for the documents of a Kubeflow pipeline, which are created from a config."""

from __future__ import annotations

import argparse
import dataclasses
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from components.base.errors import InputError, MachineError
from pipeline.authoring.config import load
from pipeline.authoring.config.orchestrators import KubeflowConfig, ScheduleConfig
from pipeline.cli.node.run import _parse_span
from pipeline.core.records import GraphNode
from pipeline.orchestration import kubeflow
from pipeline.orchestration import kubeflow as kubeflow_client
from tests.support.data import people
from tests.support.runs.command import light_command

GRAPH = (GraphNode("ExampleGen", ()), GraphNode("SchemaGen", ()), GraphNode("Trainer", ("ExampleGen", "SchemaGen")))
SECTION = {"image": "example.com/team/pipeline:1.4", "claim": "pipeline"}
RUN = "{{$.pipeline_job_uuid}}"


def make_job(schedule: dict[str, Any] | None = None, **section: Any) -> kubeflow.Job:
    return kubeflow.Job(
        "my_people",
        GRAPH,
        ("--config", "configs/people.yaml"),
        KubeflowConfig.model_validate({**SECTION, **section}),
        ScheduleConfig.model_validate({"start": "2026-01-01", **schedule}) if schedule is not None else None,
    )


def get_tasks(spec: dict[str, Any]) -> dict[str, Any]:
    graph_tasks: dict[str, Any] = spec["root"]["dag"]["tasks"]
    return graph_tasks


def test_every_node_runs_in_a_container_after_the_compilation() -> None:
    spec, _ = kubeflow.make_documents(make_job())
    assert spec["pipelineInfo"]["name"] == "my-people"
    dependencies = {name: task.get("dependentTasks", []) for name, task in get_tasks(spec).items()}
    assert dependencies == {
        "compile": [],
        "example-gen": ["compile"],
        "schema-gen": ["compile"],
        "trainer": ["example-gen", "schema-gen"],
    }
    executors = spec["deploymentSpec"]["executors"]
    pipeline_file = f"/data/out/my_people/logs/{RUN}/pipeline.pb"
    assert executors["exec-compile"]["container"] == {
        "image": "example.com/team/pipeline:1.4",
        "command": ["python", "runner.py"],
        "args": [
            "node",
            "compile",
            "--config",
            "configs/people.yaml",
            "--output",
            "/data/out",
            "--into",
            pipeline_file,
        ],
    }
    node = ["node", "run", "--pipeline", pipeline_file, "--node", "Trainer", "--run-id", RUN]
    described = ["--logs", "/data/out/my_people/logs", "--executor-input", "{{$}}"]
    assert executors["exec-trainer"]["container"]["args"] == [*node, *described]
    assert "--executor-input" not in executors["exec-schema-gen"]["container"]["args"]
    assert executors["exec-example-gen"]["container"]["args"][8:10] == ["--span", "{{$.inputs.parameters['span']}}"]


def test_evaluator_declares_a_matrix_only_for_a_classification() -> None:
    graph = (GraphNode("Evaluator", ()),)
    for classifies in (True, False):
        job = dataclasses.replace(make_job(), graph=graph, classifies=classifies)
        artifacts = kubeflow.make_documents(job)[0]["components"]["comp-evaluator"]["outputDefinitions"]["artifacts"]
        types = {name: artifact["artifactType"]["schemaTitle"] for name, artifact in artifacts.items()}
        matrix = {"classification": "system.ClassificationMetrics"} if classifies else {}
        assert types == {"metrics": "system.Metrics", "report": "system.HTML", **matrix}


def test_run_that_is_not_due_ends_before_the_compilation() -> None:
    spec, platform = kubeflow.make_documents(make_job({"only_if": "new_span", "span": "date"}))
    assert list(get_tasks(spec)) == ["due", "run"]
    assert get_tasks(spec)["run"]["triggerPolicy"] == {"condition": "inputs.parameter_values['due'] == 'yes'"}
    assert (
        spec["components"]["comp-run"]["dag"]["tasks"].keys()
        == get_tasks(kubeflow.make_documents(make_job())[0]).keys()
    )
    due = spec["deploymentSpec"]["executors"]["exec-due"]["container"]["args"]
    assert due[-2:] == ["--into", "{{$.outputs.parameters['due'].output_file}}"]
    assert spec["root"]["inputDefinitions"]["parameters"]["span"]["defaultValue"] == "today"
    assert set(platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]) == set(
        spec["deploymentSpec"]["executors"]
    )


def test_section_and_schedule_are_applied_to_every_container() -> None:
    spec, platform = kubeflow.make_documents(
        make_job(
            {"retries": 1, "retry_minutes": 0.5, "timeout_hours": 2},
            mount="/mnt/all",
            secrets={"METADATA_PASSWORD": {"secret": "metadata", "key": "password"}},  # pragma: allowlist secret
            environment={"TZ": "UTC"},
            resources={"every": {"cpu": 0.5}, "Trainer": {"cpu": 4, "memory_gb": 16, "gpus": 1}},
            node_selector={"pool": "batch"},
        )
    )
    executors = spec["deploymentSpec"]["executors"]
    for settings in platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values():
        assert settings == {
            "pvcMount": [{"constant": "pipeline", "mountPath": "/mnt/all"}],
            "secretAsEnv": [
                {
                    "secretName": "metadata",  # pragma: allowlist secret
                    "keyToEnv": [{"secretKey": "password", "envVar": "METADATA_PASSWORD"}],  # pragma: allowlist secret
                }
            ],
            "nodeSelector": {"labels": {"pool": "batch"}},
            "activeDeadlineSeconds": "7200",
        }
    for executor in executors.values():
        assert executor["container"]["env"] == [{"name": "TZ", "value": "UTC"}]
    assert executors["exec-compile"]["container"]["resources"] == {"cpuLimit": 0.5}
    accelerator = {"type": "nvidia.com/gpu", "count": "1"}
    trainer_resources = {"cpuLimit": 4, "memoryLimit": 16, "accelerator": accelerator}
    assert executors["exec-trainer"]["container"]["resources"] == trainer_resources
    retry_policy = {"maxRetryCount": 1, "backoffDuration": "30s", "backoffFactor": 1.0}
    assert [task["retryPolicy"] for task in get_tasks(spec).values()] == [retry_policy] * 4
    assert "/mnt/all/out" in executors["exec-compile"]["container"]["args"]
    # Without retries, the retry policy is left out.
    assert "retryPolicy" not in get_tasks(kubeflow.make_documents(make_job({"retries": 0}))[0])["trainer"]


def test_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "new" / "people.yaml"
    kubeflow.write(make_job(), file)
    assert list(yaml.safe_load_all(file.read_text())) == [*kubeflow.make_documents(make_job())]
    assert list(file.parent.iterdir()) == [file]
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        kubeflow.write(make_job(), tmp_path / "file" / "people.yaml")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"image": "example.com:5000/pipeline"}, "a tag or a digest"),
        ({"image": "pipeline:latest"}, "a tag or a digest"),
        ({"mount": "data"}, "mount"),
        ({"claim": "My Claim"}, "claim"),
        ({"secrets": {"A": {"secret": "s"}}}, "key"),
        ({"user": 0}, "user"),
    ],
)
def test_invalid_section_is_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        KubeflowConfig.model_validate({**SECTION, **wrong})


def test_two_orchestrators_at_once_are_rejected() -> None:
    process = light_command("--kubeflow", "--vertex", "--output", "x.yaml")
    assert (process.exit_code, "not allowed with argument --kubeflow" in process.err) == (2, True)


def test_digest_pins_an_image() -> None:
    image = f"example.com:5000/pipeline@sha256:{'0' * 64}"
    assert KubeflowConfig.model_validate({**SECTION, "image": image}).image == image


def test_config_that_cannot_run_on_kubeflow_is_rejected(tmp_path: Path) -> None:
    data = people.write(tmp_path / "people.csv", people.rows())
    config = str(people.write_config(tmp_path / "people.yaml", data))
    with pytest.raises(InputError, match="expected a kubeflow section"):
        kubeflow.check(load(config).config)
    sets = [f"kubeflow.{name}={value}" for name, value in SECTION.items()]
    with pytest.raises(InputError, match="metadata store on a server"):
        kubeflow.check(load(config, sets).config)
    server = ["metadata.backend=mysql", "metadata.host=db", "metadata.database=d", "metadata.user=u"]
    loaded = load(config, [*sets, *server]).config
    section = kubeflow.check(loaded)
    assert section.claim == "pipeline"
    with pytest.raises(InputError, match=r"expected kubeflow\.host"):
        kubeflow_client.submit(loaded, section, tmp_path / "people.yaml")


def test_missing_kfp_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kubeflow_client.PYTHON, raising=False)
    monkeypatch.setattr(kubeflow_client, "_OWN", tmp_path / "none")
    data = people.write(tmp_path / "people.csv", people.rows())
    loaded = load(str(people.write_config(tmp_path / "people.yaml", data))).config
    section = KubeflowConfig.model_validate({**SECTION, "host": "https://example.com"})
    with pytest.raises(MachineError, match="kfp, Kubeflow's client, is not installed") as raised:
        kubeflow_client.submit(loaded, section, tmp_path / "people.yaml")
    assert "tools/environment.sh kubeflow" in raised.value.remedy


def test_span_is_parsed_from_a_number_a_date_or_a_word() -> None:
    assert _parse_span("newest") is None
    assert _parse_span("17") == 17
    assert _parse_span("1970-01-31") == 30
    today = (datetime.now(timezone.utc).date() - datetime(1970, 1, 1, tzinfo=timezone.utc).date()).days
    assert _parse_span("today") in (today, today + 1)
    with pytest.raises(argparse.ArgumentTypeError, match="received 'yesterday'"):
        _parse_span("yesterday")
