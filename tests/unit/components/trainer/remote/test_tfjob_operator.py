"""Tests that the fake training operator sets TF_CONFIG like the real operator."""

from __future__ import annotations

from components.trainer.config import TrainingConfig
from components.trainer.remote import manifests
from components.trainer.remote.config import WhereConfig
from pipeline.authoring.config import load
from tests.support.fakes.tfjob_operator import restarts, tasks


def job_of(training: TrainingConfig) -> manifests.Job:
    return manifests.Job("train-taxi", training, WhereConfig(kind="tfjob", image="image"), "/shared/job.json")


def test_every_task_has_the_same_cluster_and_a_different_index():
    config = load(
        "configs/taxi.yaml",
        ["training.strategy={kind: parameter_server, workers: 3, ps: 2}", "training.evaluator=true"],
    ).config
    created_tasks = tasks(manifests.tfjob_manifest(job_of(config.training)))
    assert [(task.type, task.index) for task in created_tasks] == [
        ("chief", 0),
        *[("worker", index) for index in range(3)],
        *[("ps", index) for index in range(2)],
        ("evaluator", 0),
    ]
    clusters = []
    for task in created_tasks:
        assert task.command == ["python", "-m", "components.trainer.cluster_task", "/shared/job.json"]
        assert task.tf_config is not None
        assert task.tf_config["task"] == {"type": task.type, "index": task.index}
        assert task.tf_config["environment"] == "cloud"
        clusters.append(task.tf_config["cluster"])
    assert all(cluster == clusters[0] for cluster in clusters)
    counts = {kind: len(addresses) for kind, addresses in clusters[0].items()}
    assert counts == {"chief": 1, "worker": 3, "ps": 2, "evaluator": 1}
    addresses = [address for task_addresses in clusters[0].values() for address in task_addresses]
    assert len(set(addresses)) == len(addresses)


def test_single_task_does_not_have_a_tf_config():
    config = load("configs/taxi.yaml", ["training.strategy.kind=none"]).config
    [task] = tasks(manifests.tfjob_manifest(job_of(config.training)))
    assert task.tf_config is None


def test_only_tasks_that_end_by_a_signal_are_restarted():
    assert [code for code in (0, 1, 2, 127, 128, 137, 143) if restarts(code)] == [128, 137, 143]
