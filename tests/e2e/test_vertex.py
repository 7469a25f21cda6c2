"""What we write for Vertex AI Pipelines, run container by container: the same model and lineage as a run here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import ROOT, Runs, command
from managed_pipelines import BUCKET, Edge, Run, Service

from pipeline.graph import NODES
from pipeline.metadata.store import Store

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("taxi")]

CONTAINERS = set(NODES) - {"Tuner", "BaseModel", "LatestBlessedModel"}
LOOKUPS = {"LatestBlessedModel-model-blessing-resolver", "LatestBlessedModel-model-resolver"}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cloud")


@pytest.fixture(scope="module")
def service(cloud: Path) -> Service:
    return Service(cloud)


def spec_of(folder: Path, *sets: str) -> Path:
    """The shipped example for Vertex AI; the config stays as it is."""
    file = folder / "taxi.yaml"
    fields = ["vertex.project=mine", "vertex.region=europe-west4", "vertex.image=an/image:1", *sets]
    given = [word for field in (f"vertex.root={BUCKET}/taxi", *fields) for word in ("--set", field)]
    ended = command("--vertex", "--config", "configs/taxi.yaml", "--output", str(file), *given)
    assert (ended.exit_code, ended.err) == (0, "")
    assert ended.out.splitlines()[0].startswith("careful: data.path: data/taxi is on this machine")
    assert f"{len(CONTAINERS | LOOKUPS)} tasks" in ended.out
    return file


@pytest.fixture(scope="module")
def first(service: Service, taxi: Runs, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The first run; `taxi` has made the data."""
    assert taxi.first.exit_code == 0
    run = service.run(spec_of(tmp_path_factory.mktemp("first")))
    assert run.named("failed") == set(), "\n".join(run.tasks[each].log[-3000:] for each in run.named("failed"))
    return run


def verdict(run: Run) -> dict[str, object]:
    [evaluation] = run.tasks["Evaluator"].outputs["evaluation"]
    told: dict[str, object] = json.loads((Path(evaluation.uri) / "verdict.json").read_text())
    return told


def test_every_container_has_run(first: Run):
    assert first.named("succeeded") == CONTAINERS | LOOKUPS
    [blessing] = first.tasks["Evaluator"].outputs["blessing"]
    [model] = first.tasks["Trainer"].outputs["model"]
    assert (blessing.metadata["blessed"], blessing.metadata["current_model_id"]) == (1, model.name)


def test_the_model_is_as_good_as_that_of_a_local_run(first: Run, taxi: Runs):
    [whole] = [each for each in verdict(first)["slices"] if not each["slice"]]  # type: ignore[attr-defined]
    local = taxi.first.told["metrics"]
    assert whole["metrics"].keys() >= local.keys()
    assert {name: pytest.approx(value, abs=1e-3) for name, value in local.items()} == {
        name: whole["metrics"][name] for name in local
    }


def test_the_lineage_is_that_of_a_local_run(first: Run, taxi: Runs):
    store = Store(taxi.output / "metadata.db")
    executions = [each for each in store.executions(taxi.first.told["run"]) if each.node in CONTAINERS]
    nodes = {each.id: each.node for each in executions}
    read = [event for event in store.events(nodes) if event.kind == 3]
    artifacts = store.artifacts_by_id(event.artifact for event in read)
    makers = store.makers(artifacts)
    local: set[Edge] = {
        (nodes[makers[event.artifact]], artifacts[event.artifact].type, nodes[event.execution]) for event in read
    }
    assert first.lineage(CONTAINERS) == local


def test_the_version_is_where_model_servers_look_and_says_where_it_is_from(first: Run, cloud: Path):
    [version] = (cloud / "taxi" / "pushed").iterdir()
    manifest = json.loads((version / "manifest.json").read_text())
    assert (manifest["pipeline"], manifest["run"]) == ("taxi", first.name)
    assert manifest["metrics"]["auc"] > 0.93
    assert (version / "assets.extra" / "tf_serving_warmup_requests").is_file()


def test_nothing_is_left_beside_the_artifacts(first: Run, cloud: Path):
    [job] = (cloud / "taxi" / "123456789").iterdir()
    assert job.name == first.name
    left = {path.name for path in job.glob(".*/*")} | {path.name for path in job.glob("*/.*")}
    assert left == set()


def test_another_run_takes_what_is_unchanged_and_finds_the_baseline(first: Run, service: Service, tmp_path: Path):
    second = service.run(spec_of(tmp_path, "training.steps=150"))
    assert second.named("failed") == set(), "\n".join(second.tasks[each].log[-3000:] for each in second.named("failed"))
    anew = {"Trainer", "Evaluator", "InfraValidator", "Pusher"}
    assert (second.named("succeeded"), second.named("cached")) == (anew | LOOKUPS, CONTAINERS - anew)
    [baseline] = second.tasks["Evaluator"].inputs["baseline_model"]
    assert [baseline] == first.tasks["Trainer"].outputs["model"]
    bounds = [check["bound"] for check in verdict(second)["checks"]]  # type: ignore[attr-defined]
    assert any("worse" in bound for bound in bounds)
    assert ROOT.joinpath("gs:").exists() is False
