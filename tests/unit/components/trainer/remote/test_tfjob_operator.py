"""The fake training operator sets TF_CONFIG as the operator does."""

from __future__ import annotations

from tfjob_operator import restarts, tasks

from components.trainer.config import TrainingConfig
from components.trainer.remote import manifests
from components.trainer.remote.config import WhereConfig
from pipeline.authoring.config import load


def job_of(training: TrainingConfig) -> manifests.Job:
    return manifests.Job("train-taxi", training, WhereConfig(kind="tfjob", image="image"), "/shared/job.json")


def test_every_task_has_the_same_cluster_with_the_evaluator_and_its_own_index():
    config = load(
        "configs/taxi.yaml",
        ["training.strategy={kind: parameter_server, workers: 3, ps: 2}", "training.evaluator=true"],
    ).config
    made = tasks(manifests.tfjob_manifest(job_of(config.training)))
    assert [(task.type, task.index) for task in made] == [
        ("chief", 0),
        *[("worker", index) for index in range(3)],
        *[("ps", index) for index in range(2)],
        ("evaluator", 0),
    ]
    clusters = []
    for task in made:
        assert task.command == ["python", "-m", "components.trainer.cluster_task", "/shared/job.json"]
        assert task.tf_config is not None
        assert task.tf_config["task"] == {"type": task.type, "index": task.index}
        assert task.tf_config["environment"] == "cloud"
        clusters.append(task.tf_config["cluster"])
    assert all(cluster == clusters[0] for cluster in clusters)
    counts = {kind: len(addresses) for kind, addresses in clusters[0].items()}
    assert counts == {"chief": 1, "worker": 3, "ps": 2, "evaluator": 1}
    addresses = [address for each in clusters[0].values() for address in each]
    assert len(set(addresses)) == len(addresses)


def test_single_task_has_no_tf_config():
    config = load("configs/taxi.yaml", ["training.strategy.kind=none"]).config
    [task] = tasks(manifests.tfjob_manifest(job_of(config.training)))
    assert task.tf_config is None


def test_only_exit_codes_of_signals_are_restarted():
    assert [code for code in (0, 1, 2, 127, 128, 137, 143) if restarts(code)] == [128, 137, 143]
