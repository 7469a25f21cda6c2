"""A real API server with the published definitions accepts every manifest that the project contains or writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.pusher import rollout
from components.pusher.config import RolloutConfig
from components.pusher.serving_state import Canary, Stages, State
from components.trainer.remote import manifests
from pipeline.authoring.config import load
from tests.support.runs.command import ROOT
from tests.support.servers.kubernetes_cluster import Cluster, api_server, definitions, has_api_server

pytestmark = [pytest.mark.cluster, has_api_server]

STRATEGIES = ("{kind: none}", "{kind: multi_worker, workers: 4}", "{kind: parameter_server, workers: 3, ps: 2}")
WHERE = (
    "training.where={kind: KIND, image: i, resources: {cpu: 2, memory: 4Gi}, service_account: trainer, "
    "queue: gpus, isolated: true, spread: topology.kubernetes.io/zone, "
    "volumes: {/mnt/train: {persistentVolumeClaim: {claimName: train}}}}"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with api_server(tmp_path_factory.mktemp("api-server") / "server") as cluster:
        names = ("jobset", "trainer", "training-operator", "istio", "kserve")
        known = [document for name in names for document in definitions(name)]
        cluster.apply(*(document for document in known if document["kind"] == "CustomResourceDefinition"))
        cluster.wait_for("condition=Established", "crd", "--all")
        yield cluster


def job(kind: str, strategy: str) -> manifests.Job:
    sets = [f"training.strategy={strategy}", "training.evaluator=true", WHERE.replace("KIND", kind)]
    training = load("configs/taxi.yaml", sets).config.training
    assert training.where is not None
    return manifests.Job("train-taxi", training, training.where, "/mnt/train/job.json", (1, 1))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["jobset", "trainjob", "tfjob"])
def test_job_of_a_training(cluster: Cluster, kind: str, strategy: str) -> None:
    training = job(kind, strategy)
    cluster.apply(*manifests.companion_manifests(training), manifests.MANIFESTS[kind](training), dry_run=True)


def test_unknown_field_is_refused(cluster: Cluster) -> None:
    """Without this check, the other tests of this file would accept everything."""
    manifest = manifests.tfjob_manifest(job("tfjob", STRATEGIES[1]))
    manifest["spec"]["tfReplicaSpecs"]["Worker"]["replica"] = 2
    with pytest.raises(AssertionError, match=r"Worker.replica: field not declared in schema"):
        cluster.apply(manifest, dry_run=True)


def test_shipped_manifests(cluster: Cluster) -> None:
    for folder in sorted((ROOT / "deploy").glob("*/kustomization.yaml")):
        cluster.apply(*yaml.safe_load_all(cluster.kubectl("kustomize", folder.parent)), dry_run=True)


@pytest.mark.parametrize("canary", [None, Canary(version=2, percent=10)], ids=["stable", "canary"])
def test_files_of_a_rollout(cluster: Cluster, tmp_path: Path, canary: Canary | None) -> None:
    for version in (1, 2):
        (tmp_path / str(version)).mkdir()
    state = State().change_stages("promote", Stages(stable=1, canary=canary), "me")
    settings = RolloutConfig(base_path="/models/taxi", model_name="taxi", storage_uri="pvc://models/taxi")
    rollout.write(tmp_path, state.model_copy(update={"rollout": settings}))
    written: list[dict[str, Any]] = [
        document
        for file in sorted((tmp_path / rollout.FOLDER).glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]
    assert {document["kind"] for document in written} == {"VirtualService", "DestinationRule", "InferenceService"}
    cluster.apply(*written, dry_run=True)
