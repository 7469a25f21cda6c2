"""The stand-in for the training operator tells tasks what the operator would."""

from __future__ import annotations

from tfjob_operator import restarts, tasks

from pipeline.config import load
from pipeline.manifest import tfjob


def test_all_but_the_evaluator_are_in_the_cluster_and_every_task_knows_its_place():
    config = load(
        "configs/taxi.yaml",
        ["training.strategy={kind: parameter_server, workers: 3, ps: 2}", "training.evaluator=true"],
    ).config
    made = tasks(tfjob.manifest(config, "image", "/shared/job.json"))
    assert [(task.type, task.index) for task in made] == [
        ("chief", 0),
        *[("worker", index) for index in range(3)],
        *[("ps", index) for index in range(2)],
        ("evaluator", 0),
    ]
    clusters = []
    for task in made:
        assert task.command == ["python", "-m", "components.trainer.member", "/shared/job.json"]
        assert task.tf_config is not None
        assert task.tf_config["task"] == {"type": task.type, "index": task.index}
        assert task.tf_config["environment"] == "cloud"
        clusters.append(task.tf_config["cluster"])
    assert all(cluster == clusters[0] for cluster in clusters)
    assert {kind: len(addresses) for kind, addresses in clusters[0].items()} == {"chief": 1, "worker": 3, "ps": 2}
    addresses = [address for found in clusters[0].values() for address in found]
    assert len(set(addresses)) == len(addresses)


def test_a_single_task_is_told_of_no_cluster():
    config = load("configs/taxi.yaml", ["training.strategy.kind=none"]).config
    [task] = tasks(tfjob.manifest(config, "image", "/shared/job.json"))
    assert task.tf_config is None


def test_only_what_a_signal_took_is_started_anew():
    assert [code for code in (0, 1, 2, 127, 128, 137, 143) if restarts(code)] == [128, 137, 143]
