"""Kubeflow's own loader, messages and client accept the pipelines that this project writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pipeline.authoring.config.orchestrators import KubeflowConfig, ScheduleConfig
from pipeline.core.metadata.store import Store
from pipeline.core.records import GraphNode
from pipeline.inspection import kubeflow_outputs
from pipeline.orchestration import kubeflow
from tests.support.data import people
from tests.support.fakes.fake_service import JsonHandler, serving
from tests.support.runs import report_runs
from tests.support.runs.command import command
from tests.support.runs.store_writer import Writer
from tests.support.servers import kubeflow_pipelines

pytestmark = kubeflow_pipelines.needs_kfp

SECTION = {"image": "example.com/team/pipeline:1.4", "claim": "pipeline"}
SERVER = ("metadata.backend=postgresql", "metadata.host=db", "metadata.database=metadata", "metadata.user=tfx")
MADE = "made-1"
PASSWORD = {"secretKey": "password", "envVar": "METADATA_PASSWORD"}  # pragma: allowlist secret
OF_ANOTHER, EARLIER = {"recurring_run_id": "1", "display_name": "other"}, {"recurring_run_id": "2"}


@dataclass
class Api:
    """A fake of Kubeflow's API, which `--submit` calls.

    Attributes:
      requests: method, path and JSON of every request that changes something.
      refuses: whether it rejects them.
      url: its address.
    """

    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    refuses: bool = False
    url: str = ""


def _handler(api: Api) -> type[JsonHandler]:
    class Handler(JsonHandler):
        def do_GET(self) -> None:
            responses = {
                "healthz": {"multi_user": False},
                "experiments": {"experiments": [{"experiment_id": "e-7", "display_name": "Default"}]},
                "recurringruns": {"recurringRuns": [OF_ANOTHER, {**EARLIER, "display_name": "people"}]},
            }
            self.respond(responses.get(self._route(), {}))

        def do_POST(self) -> None:
            api.requests.append((self.command, self._route(), json.loads(self.body() or "null")))
            self.respond(*(({"error": "no"}, 403) if api.refuses else (_create_answer(self._route()),)))

        do_DELETE = do_POST

        def _route(self) -> str:
            return urlsplit(self.path).path.removeprefix("/apis/v2beta1/")

    return Handler


def _create_answer(path: str) -> dict[str, str]:
    return {"runs": {"run_id": MADE}, "recurringruns": {"recurring_run_id": MADE}}.get(path, {})


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    with serving(_handler(api)) as port:
        api.url = f"http://127.0.0.1:{port}"
        yield api


def write_spec(folder: Path, *more: str, **sections: Any) -> tuple[Any, Path]:
    """Run `--kubeflow` on a new config; return the finished command and the written file."""
    config = people.project(folder, **sections)
    sets = [f"kubeflow.{name}={value}" for name, value in SECTION.items()]
    shared = [word for setting in (*sets, *SERVER) for word in ("--set", setting)]
    file = folder / "kubeflow" / "people.yaml"
    return command("--kubeflow", "--config", str(config), *shared, "--output", str(file), *more), file


def test_its_loader_reads_what_was_meant(tmp_path: Path) -> None:
    ended, file = write_spec(
        tmp_path,
        schedule={"start": "2026-01-01", "retries": 1, "timeout_hours": 1},
        kubeflow={
            "secrets": {"METADATA_PASSWORD": {"secret": "metadata", "key": "password"}},  # pragma: allowlist secret
            "resources": {"Trainer": {"cpu": 2, "memory_gb": 8, "gpus": 1}},
            "node_selector": {"pool": "batch"},
            "environment": {"TZ": "UTC"},
            "labels": {"kueue.x-k8s.io/queue-name": "training"},
            "user": 1000,
        },
    )
    assert (ended.exit_code, ended.err) == (0, "")
    assert "each a container of example.com/team/pipeline:1.4" in ended.out
    pipeline = kubeflow_pipelines.read(file)
    assert pipeline.spec["pipelineInfo"]["name"] == "people"
    trainer = pipeline.container("trainer")
    assert trainer["image"] == "example.com/team/pipeline:1.4"
    assert trainer["args"][:3] == ["node", "run", "--pipeline"]
    assert trainer["env"] == [{"name": "TZ", "value": "UTC"}]
    assert trainer["resources"] == {
        "cpuLimit": 2.0,
        "memoryLimit": 8.0,
        "accelerator": {"type": "nvidia.com/gpu", "count": "1"},
    }
    graph = pipeline.spec["root"]["dag"]["tasks"]
    assert set(graph["trainer"]["dependentTasks"]) == {"schema-gen", "statistics-gen", "transform"}
    assert graph["trainer"]["retryPolicy"]["maxRetryCount"] == 1
    assert not graph["trainer"].get("cachingOptions")
    assert set(pipeline.kubernetes) == {f"exec-{name}" for name in graph}
    assert all(
        settings
        == {
            "pvcMount": [{"constant": "pipeline", "mountPath": "/data"}],
            "secretAsEnv": [{"secretName": "metadata", "keyToEnv": [PASSWORD]}],  # pragma: allowlist secret
            "nodeSelector": {"labels": {"pool": "batch"}},
            "podMetadata": {"labels": {"kueue.x-k8s.io/queue-name": "training"}},
            "securityContext": {"runAsUser": "1000", "runAsNonRoot": True},
            "activeDeadlineSeconds": "3600",
        }
        for settings in pipeline.kubernetes.values()
    )


def test_its_local_runner_reads_the_artifacts_of_a_run(tmp_path: Path) -> None:
    ended, file = write_spec(tmp_path)
    assert (ended.exit_code, ended.err) == (0, "")
    report_runs.write_run(tmp_path / "runs")
    store, report = Store(tmp_path / "runs/metadata.db"), tmp_path / "report.html"
    report.write_text("<p>the report</p>")
    inputs = kubeflow_pipelines.make_inputs(file, tmp_path, "example-gen", "trainer", "evaluator", "pusher")
    for executor_input in inputs.values():
        kubeflow_outputs.write(store, "r1", report, executor_input)
    artifacts = kubeflow_pipelines.read_outputs(file, inputs, tmp_path)
    assert {task: {name: shown["type"] for name, shown in outputs.items()} for task, outputs in artifacts.items()} == {
        "example-gen": {"examples": "Dataset"},
        "trainer": {"model": "Model"},
        "evaluator": {"metrics": "Metrics", "classification": "ClassificationMetrics"},
        # Nothing was pushed.
        "pusher": {},
    }
    assert artifacts["evaluator"]["metrics"]["metadata"]["auc"] == 0.75
    assert artifacts["trainer"]["model"]["uri"] == str(tmp_path / "runs/r1/model")
    classification = artifacts["evaluator"]["classification"]
    assert classification["metadata"] == classification["logged"]
    assert (tmp_path / "evaluator/report").read_text() == "<p>the report</p>"
    declared = kubeflow_pipelines.read(file).spec["components"]["comp-evaluator"]["outputDefinitions"]["artifacts"]
    assert declared["report"]["artifactType"]["schemaTitle"] == "system.HTML"


def test_its_loader_reads_what_is_for_vertex_ai_too(tmp_path: Path) -> None:
    data = people.write(tmp_path / "people.csv", people.rows())
    config = people.write_config(
        tmp_path / "people.yaml",
        data,
        vertex={"project": "p", "region": "europe-west4", "image": "an/image:1", "root": "gs://bucket/people"},
    )
    file = tmp_path / "vertex.yaml"
    ended = command("--vertex", "--config", str(config), "--output", str(file))
    assert (ended.exit_code, ended.err) == (0, "")
    pipeline = kubeflow_pipelines.read(file)
    assert pipeline.spec["pipelineInfo"]["name"] == "people"
    executors = pipeline.spec["deploymentSpec"]["executors"]
    assert executors["Trainer_executor"]["container"]["image"] == "an/image:1"
    # Settings that Kubeflow Pipelines cannot run.
    assert any("resolver" in executor for executor in executors.values())
    assert "preCacheCheck" in executors["ExampleGen_executor"]["container"]["lifecycle"]


def test_run_is_submitted(api: Api, tmp_path: Path) -> None:
    sets = (f"kubeflow.host={api.url}", "kubeflow.service_account=w")
    ended, file = write_spec(tmp_path, "--submit", *(word for setting in sets for word in ("--set", setting)))
    assert (ended.exit_code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == f"run {MADE} has been started at {api.url}"
    [(method, path, run)] = api.requests
    assert (method, path) == ("POST", "runs")
    assert (run["experiment_id"], run["display_name"], run["service_account"]) == ("e-7", "people", "w")
    sent = run["pipeline_spec"]
    assert set(sent) == {"pipeline_spec", "platform_spec"}
    assert sent["pipeline_spec"]["components"] == kubeflow_pipelines.read(file).spec["components"]


def test_schedule_takes_the_place_of_the_earlier_one(api: Api, tmp_path: Path) -> None:
    schedule = {"every": "30 4 * * 1", "start": "2026-01-01", "catch_up": True, "span": "date"}
    (tmp_path / "2026-01-01").mkdir()
    people.write(tmp_path / "2026-01-01" / "people.csv", people.rows())
    spans = ("--set", f"data.path={tmp_path / '{YYYY}-{MM}-{DD}' / 'people.csv'}")
    host = ("--set", f"kubeflow.host={api.url}")
    ended, _ = write_spec(tmp_path, "--submit", *spans, *host, schedule=schedule)
    assert (ended.exit_code, ended.err) == (0, "")
    message = f"recurring run {MADE} at {api.url}, which replaces the earlier one: 0 30 4 * * 1"
    assert ended.out.splitlines()[-1] == message
    [(_, created, run), removed] = api.requests
    assert created == "recurringruns"
    # The schedule of the other pipeline is not changed.
    assert removed[:2] == ("DELETE", f"recurringruns/{EARLIER['recurring_run_id']}")
    assert run["trigger"]["cron_schedule"] == {"cron": "0 30 4 * * 1", "start_time": "2026-01-01T00:00:00Z"}
    assert (run["max_concurrency"], run["no_catchup"], run["mode"]) == (1, False, "ENABLE")
    assert run["runtime_config"] == {"parameters": {"span": "[[ScheduledTime.2006-01-02]]"}}


def test_errors_of_kubeflow_are_reported(api: Api, tmp_path: Path) -> None:
    api.refuses = True
    host = ("--set", f"kubeflow.host={api.url}")
    ended, file = write_spec(tmp_path, "--submit", *host, schedule={"start": "2026-01-01"})
    assert ended.exit_code == 1
    assert f"Kubeflow at {api.url} has not accepted the pipeline" in ended.err
    assert '403 Forbidden: {"error": "no"}' in ended.err
    assert str(file) in ended.err
    # No schedule was removed for the rejected one.
    assert [method for method, _, _ in api.requests] == ["POST"]


def test_scheduled_run_continues_only_when_it_is_due(tmp_path: Path) -> None:
    for span in (1, 2):
        (tmp_path / "data" / str(span)).mkdir(parents=True)
        people.write(tmp_path / "data" / str(span) / "people.csv", people.rows(300 + span, seed=span))
    config = people.write_config(
        tmp_path / "people.yaml",
        tmp_path / "data" / "{SPAN}" / "people.csv",
        schedule={"start": "2026-01-01", "only_if": "new_span"},
    )
    job = kubeflow.Job(
        "people",
        (GraphNode("ExampleGen", ()),),
        ("--config", str(config)),
        KubeflowConfig.model_validate({**SECTION, "mount": str(tmp_path / "volume")}),
        ScheduleConfig.model_validate({"start": "2026-01-01", "only_if": "new_span"}),
    )
    kubeflow.write(job, tmp_path / "people.kubeflow.yaml")
    pipeline = kubeflow_pipelines.read(tmp_path / "people.kubeflow.yaml")
    cluster = kubeflow_pipelines.Cluster(tmp_path / "cluster")
    first = cluster.run(pipeline, span="1")
    assert cluster.ran == ["due", "compile", "example-gen"]
    second = cluster.run(pipeline)
    # Replace the slow nodes: only the run's verdict matters.
    writer = Writer(tmp_path / "volume/out/people/metadata.db", "people")
    writer.execution(second, "Evaluator", outputs=[writer.artifact("ModelBlessing", "/b", blessed=1)])
    cluster.ran.clear()
    cluster.run(pipeline)
    assert cluster.ran == ["due"]
    store = Store(tmp_path / "volume/out/people/metadata.db")
    spans = [store.artifacts(run, "Examples")[0].properties["span"] for run in (first, second)]
    assert spans == [1, 2]
    assert len(store.runs()) == 2
