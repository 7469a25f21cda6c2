"""Manifests that start a config's training tasks on a cluster.

A TFJob (kubeflow.org/v1) for Kubeflow's training operator, release 1.x; a JobSet (jobset.x-k8s.io/v1alpha2), which
Kubeflow Trainer v2 installs instead of the TFJob; and a CustomJob for Vertex AI, in the form of its REST API.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from components.errors import InputError

if TYPE_CHECKING:
    from components.trainer.config import TrainingConfig
    from pipeline.authoring.config import Config

CONTAINER = "tensorflow"
"""The container's name: the training operator adds TF_CONFIG only to a container of this name."""
PORT = 2222

_MAX_NAME_LENGTH = 40


def tasks(training: TrainingConfig) -> dict[str, int]:
    """The tasks by role (chief, worker, ps, evaluator, in this order) and how many of each; workers: at most.

    Raises:
      InputError: there is no manifest for the strategy.
    """
    strategy = training.strategy
    if strategy.kind == "tpu":
        raise InputError(
            "training.strategy.kind: expected a strategy without TPU, received tpu",
            "run `python runner.py --local` on a TPU VM, or choose mirrored, multi_worker or parameter_server",
        )
    if not strategy.is_cluster:
        return {"worker": 1}
    if strategy.kind == "parameter_server":
        counts = {"chief": 1, "worker": strategy.most_workers, "ps": strategy.ps}
    else:
        counts = {"worker": strategy.workers}
    return {**counts, "evaluator": 1} if training.evaluator else counts


def command(job: str) -> list[str]:
    """The command of every task; TF_CONFIG gives its role.

    Args:
      job: path or URI of the job file.
    """
    return ["python", "-m", "components.trainer.cluster_task", job]


def name_of(config: Config) -> str:
    """The job's name: lowercase letters, digits and -, short enough for the suffixes of the tasks' host names."""
    return f"train-{config.pipeline.name}".replace("_", "-")[:_MAX_NAME_LENGTH].rstrip("-")


_REPLICA = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}


def tfjob_manifest(config: Config, image: str, job: str) -> dict[str, Any]:
    """The TFJob that trains a config's model; the operator adds TF_CONFIG to each task.

    A task that exits with code 128 or more (ended by a signal) is restarted; a smaller code fails the job.

    Args:
      config: the pipeline.
      image: the container image, with this project in its working folder.
      job: path or URI of the job file.

    Raises:
      InputError: a TFJob does not support the strategy.
    """
    counts = tasks(config.training)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name_of(config)},
        "spec": {
            # "": with a chief, the job has succeeded when the chief has.
            "successPolicy": "" if "chief" in counts else "AllWorkers",
            # Then running tasks, such as a ps, are stopped; the pods of finished ones remain for their logs.
            "runPolicy": {"backoffLimit": config.training.max_restarts, "cleanPodPolicy": "Running"},
            "tfReplicaSpecs": {_REPLICA[role]: _replicas(count, image, job) for role, count in counts.items()},
        },
    }


def _replicas(count: int, image: str, job: str) -> dict[str, Any]:
    container = {
        "name": CONTAINER,
        "image": image,
        "command": command(job),
        "ports": [{"name": "tfjob-port", "containerPort": PORT}],
    }
    return {
        "replicas": count,
        "restartPolicy": "ExitCode",
        "template": {"spec": {"containers": [container]}},
    }


_INDEX = "TASK_INDEX"


def jobset_manifest(config: Config, image: str, job: str) -> dict[str, Any]:
    """The JobSet that trains a config's model, with the TF_CONFIG that the operator adds to a TFJob's tasks.

    A task that exits with code 128 or more (ended by a signal) restarts the whole set, and each task continues from the
    newest checkpoint; a smaller code fails the set. Workers of an elastic cluster are restarted one by one, and the
    `parallelism` of their Job may be changed while it runs; the others wait for none of them.

    Args:
      config: the pipeline.
      image: the container image, with this project in its working folder.
      job: path or URI of the job file.

    Raises:
      InputError: a JobSet does not support the strategy.
    """
    name, counts = name_of(config), tasks(config.training)
    cluster = {role: _hosts(name, role, count) for role, count in counts.items() if role != "evaluator"}
    if not config.training.strategy.is_cluster:
        cluster = {}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            # Other tasks, such as a ps, are stopped then.
            "successPolicy": {
                "operator": "All",
                "targetReplicatedJobs": ["chief" if "chief" in counts else "worker"],
            },
            "failurePolicy": {
                "maxRestarts": config.training.max_restarts,
                "rules": [{"name": "permanent", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
            },
            "replicatedJobs": [
                {"name": role, "replicas": 1, "template": {"spec": {**spec, **_elastic(role, config.training)}}}
                for role, count in counts.items()
                for spec in [_job(role, count, cluster, image, job)]
            ],
        },
    }


def _hosts(name: str, role: str, count: int) -> list[str]:
    """The host names of a JobSet's pods: <set>-<replicated job>-<job>-<pod>.<subdomain>."""
    return [f"{name}-{role}-0-{index}.{name}:{PORT}" for index in range(count)]


def _job(role: str, count: int, cluster: dict[str, list[str]], image: str, job: str) -> dict[str, Any]:
    """The Kubernetes Job with all tasks of a role; it fails with its first task, which the set's policy handles."""
    container = {
        "name": CONTAINER,
        "image": image,
        "command": command(job),
        "ports": [{"containerPort": PORT}],
        **({"env": _environment(role, cluster)} if cluster else {}),
    }
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [_permanent()]},
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }


def _permanent() -> dict[str, Any]:
    """The rule that fails a Job when a task ends with an error that a restart would not fix."""
    codes = {"containerName": CONTAINER, "operator": "In", "values": list(range(1, 128))}
    return {"action": "FailJob", "onExitCodes": codes}


def _evicted() -> dict[str, Any]:
    """The rule that replaces a pod that Kubernetes evicts, as from a spot node, and does not count it as a failure."""
    return {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def _elastic(role: str, training: TrainingConfig) -> dict[str, Any]:
    """The fields in which the Job of elastic workers differs: each worker is restarted alone."""
    if role != "worker" or not training.strategy.is_elastic:
        return {}
    return {
        "parallelism": training.strategy.workers,
        "backoffLimit": training.max_restarts,
        "podFailurePolicy": {"rules": [_evicted(), _permanent()]},
    }


def _environment(role: str, cluster: dict[str, list[str]]) -> list[dict[str, Any]]:
    # Kubernetes expands $(NAME) only for variables defined earlier in the list; a Job adds its own index at the end.
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    task = f'{{"type":"{role}","index":$({_INDEX})}}'
    tf_config = f'{{"cluster":{json.dumps(cluster, separators=(",", ":"))},"task":{task},"environment":"cloud"}}'
    return [{"name": _INDEX, "valueFrom": index}, {"name": "TF_CONFIG", "value": tf_config}]


_POOLS = ("chief", "worker", "ps", "evaluator")
"""Roles of the first to the fourth pool; Vertex AI derives the role from the position."""
_MACHINE = "n1-standard-8"


def vertex_manifest(config: Config, image: str, job: str) -> dict[str, Any]:
    """The CustomJob that trains a config's model; Vertex AI adds TF_CONFIG to each task.

    The first pool has one task, the chief; with synchronous workers it is worker 0. Unused pools are empty, and omitted
    at the end.

    Args:
      config: the pipeline.
      image: the container image, with this project in its working folder.
      job: path or URI of the job file.

    Raises:
      InputError: the CustomJob does not support the strategy.
    """
    counts = tasks(config.training)
    if "chief" not in counts:
        counts = {**counts, "chief": 1, "worker": counts["worker"] - 1}
    pools = [_pool(counts.get(role, 0), image, job) for role in _POOLS]
    while not pools[-1]:
        pools.pop()
    return {
        "displayName": name_of(config),
        "jobSpec": {
            "workerPoolSpecs": pools,
            # Synchronous workers restart only together; with parameter servers one worker can restart alone.
            "scheduling": {"restartJobOnWorkerRestart": config.training.strategy.kind == "multi_worker"},
        },
    }


def _pool(count: int, image: str, job: str) -> dict[str, Any]:
    if not count:
        return {}
    return {
        "machineSpec": {"machineType": _MACHINE},
        "replicaCount": count,
        "containerSpec": {"imageUri": image, "command": command(job)},
    }
