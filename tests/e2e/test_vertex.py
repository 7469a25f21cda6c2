"""The pipeline for Vertex AI, run container by container on gs://, gives the same model and lineage as a local run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.metadata.store import INPUT, Store
from pipeline.core.nodes import NODES
from tests.support.fakes.fake_gcs import Bucket, serve
from tests.support.fakes.fake_vertex_runner import Edge, Run, Service
from tests.support.runs.command import ROOT, Runs, command

# Its containers run the same commands as the containers of Kubeflow, and take minutes.
pytestmark = [pytest.mark.e2e, pytest.mark.orchestrator, pytest.mark.slow]

LOOKUPS = {"LatestBlessedModel-model-blessing-resolver", "LatestBlessedModel-model-resolver"}


@pytest.fixture(scope="module")
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture(scope="module")
def service(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serve(bucket, tmp_path_factory.mktemp("storage")) as environment:
        yield Service(bucket, environment)


def containers(example: Runs) -> set[str]:
    """Return the nodes that run in a container."""
    return {name for name in example.first.states if name not in NODES or not NODES[name].only_looks_up}


def spec_of(example: Runs, folder: Path, *sets: str) -> Path:
    """Return a config for Vertex AI; it stays as it is."""
    file = folder / "spec.yaml"
    fields = ["vertex.project=mine", "vertex.region=europe-west4", "vertex.image=an/image:1", *sets]
    settings = [word for field in (f"vertex.root={root(example)}", *fields) for word in ("--set", field)]
    ended = command("--vertex", *example.config, "--output", str(file), *settings)
    assert (ended.exit_code, ended.err) == (0, "")
    assert re.match(r"note: data\.path: \S+ is on this machine", ended.out.splitlines()[1])
    return file


def root(example: Runs) -> str:
    return f"gs://bucket/{example.pipeline}"


@pytest.fixture(scope="module")
def first(service: Service, example: Runs, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the first run."""
    run = service.run(spec_of(example, tmp_path_factory.mktemp("first")))
    assert run.tasks_in_state("failed") == set(), "\n".join(
        run.tasks[task].log[-3000:] for task in run.tasks_in_state("failed")
    )
    return run


def verdict(service: Service, run: Run) -> dict[str, Any]:
    [evaluation] = run.tasks["Evaluator"].outputs["evaluation"]
    record: dict[str, Any] = json.loads(service.read(f"{evaluation.uri}/verdict.json"))
    return record


def test_every_container_has_run(first: Run, example: Runs):
    assert first.tasks_in_state("succeeded") == containers(example) | LOOKUPS
    [blessing] = first.tasks["Evaluator"].outputs["blessing"]
    [model] = first.tasks["Trainer"].outputs["model"]
    assert (blessing.metadata["blessed"], blessing.metadata["current_model_id"]) == (1, model.name)


def test_model_is_as_good_as_that_of_a_local_run(first: Run, service: Service, example: Runs):
    [whole] = [entry for entry in verdict(service, first)["slices"] if not entry["slice"]]
    assert whole["metrics"] == pytest.approx(example.first.result["metrics"], abs=5e-3)


def test_lineage_is_that_of_a_local_run(first: Run, example: Runs):
    store = Store(example.output / "metadata.db")
    executions = [
        execution
        for execution in store.executions(example.first.result["run"])
        if execution.node in containers(example)
    ]
    nodes = {execution.id: execution.node for execution in executions}
    read = [event for event in store.events(nodes) if event.kind == INPUT]
    artifacts = store.artifacts_by_id(event.artifact for event in read)
    makers = store.makers(artifacts)
    local: set[Edge] = {
        (nodes[makers[event.artifact]], artifacts[event.artifact].type, nodes[event.execution]) for event in read
    }
    assert first.lineage(containers(example)) == local


def test_pushed_version_is_in_the_serving_layout_with_its_manifest(
    first: Run, service: Service, bucket: Bucket, example: Runs
):
    [pushed] = first.tasks["Pusher"].outputs["pushed_model"]
    version = f"{root(example)}/pushed/{pushed.metadata['pushed_version']}"
    assert pushed.metadata["pushed_destination"] == version
    manifest = json.loads(service.read(f"{version}/manifest.json"))
    assert (manifest["pipeline"], manifest["run"]) == (example.pipeline, first.name)
    assert manifest["metrics"] == pytest.approx(example.first.result["metrics"], abs=5e-3)
    warm_up = f"{version}/assets.extra/tf_serving_warmup_requests".removeprefix("gs://bucket/")
    assert {warm_up, *(f"{version}/{name}".removeprefix("gs://bucket/") for name in manifest["files"])} <= set(
        bucket.objects
    )


def test_checkpoints_and_logs_of_the_cluster_are_kept(first: Run, bucket: Bucket):
    [model_run] = first.tasks["Trainer"].outputs["model_run"]
    folder = model_run.uri.removeprefix("gs://bucket/")
    object_names = {name.removeprefix(f"{folder}/") for name in bucket.objects if name.startswith(f"{folder}/")}
    assert {"checkpoints/step-200.index", "logs/worker-0.log", "logs/worker-1.log"} <= object_names


def test_run_creates_no_other_files_than_artifacts(first: Run, bucket: Bucket, example: Runs):
    artifacts = f"{example.pipeline}/123456789/"
    runs = {name.split("/")[2] for name in bucket.files() if name.startswith(artifacts)}
    # The other test may have run the pipeline again already.
    assert first.name in runs
    assert all(re.fullmatch(rf"{example.pipeline}-\d+", name) for name in runs)
    assert [name for name in bucket.files() if "/." in name] == []
    assert not (ROOT / "gs:").exists(), "a URL was taken for a path"


def test_another_run_takes_what_is_unchanged_finds_the_baseline_and_survives_a_lost_machine(
    first: Run, service: Service, bucket: Bucket, example: Runs, tmp_path: Path
):
    sets = ("training.strategy.kind=none", "training.steps=150", "training.checkpoint.every_steps=50")
    # Skip the serving check, which takes long and was tested in the first run.
    schedule = "schedule={start: 2026-01-01, retries: 1, retry_minutes: 0}"
    bucket.awaited["step-50.index"] = service.kill
    second = service.run(spec_of(example, tmp_path, *sets, "serving.check=none", schedule))
    assert second.tasks_in_state("failed") == set(), "\n".join(
        second.tasks[task].log[-3000:] for task in second.tasks_in_state("failed")
    )
    rerun = {"Trainer", "Evaluator", "Pusher"}
    assert second.tasks_in_state("succeeded") == rerun | LOOKUPS
    assert second.tasks_in_state("cached") == containers(example) - rerun - {"InfraValidator"}
    assert "=== attempt 2 ===" in second.tasks["Trainer"].log
    # The training has continued from the checkpoint, which was not written again.
    written = [name for name in bucket.written() if re.search(rf"{second.name}/.*\.kept/.*/step-\d+\.index$", name)]
    assert [name.rpartition("/")[2] for name in written] == ["step-50.index", "step-100.index", "step-150.index"]
    assert second.tasks["Evaluator"].inputs["baseline_model"] == first.tasks["Trainer"].outputs["model"]
    checks = [check for check in verdict(service, second)["checks"] if "the baseline" in check["bound"]]
    assert [check["metric"] for check in checks] == ["auc"]
    assert checks[0]["baseline"] == pytest.approx(verdict(service, first)["slices"][0]["metrics"]["auc"], abs=1e-6)
