"""A JobSet (jobset.x-k8s.io/v1alpha2): Kubeflow Trainer v2 brings that, and no TFJob any more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pipeline.manifest.tasks import CONTAINER, PORT, command, name_of, tasks

if TYPE_CHECKING:
    from pipeline.config import Config

_INDEX = "TASK_INDEX"


def manifest(config: Config, image: str, job: str) -> dict[str, Any]:
    """The JobSet that trains a config's model, with the TF_CONFIG in it that a TFJob's tasks would be given.

    A task that ends with a code of 128 or more (a signal took it) starts the whole set anew, and each task goes on from
    the newest checkpoint; a smaller code ends the set.

    Args:
      config: the pipeline.
      image: the container image, with this project in its working folder.
      job: path or URI of the job file.

    Raises:
      InputError: a JobSet is not asked for the strategy.
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
            # The rest, such as a ps, is stopped then.
            "successPolicy": {
                "operator": "All",
                "targetReplicatedJobs": ["chief" if "chief" in counts else "worker"],
            },
            "failurePolicy": {
                "maxRestarts": config.training.max_restarts,
                "rules": [{"name": "permanent", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
            },
            "replicatedJobs": [
                {"name": role, "replicas": 1, "template": {"spec": _job(role, count, cluster, image, job)}}
                for role, count in counts.items()
            ],
        },
    }


def _hosts(name: str, role: str, count: int) -> list[str]:
    """The host names that a JobSet promises: <set>-<replicated job>-<job>-<pod>.<subdomain>."""
    return [f"{name}-{role}-0-{index}.{name}:{PORT}" for index in range(count)]


def _job(role: str, count: int, cluster: dict[str, list[str]], image: str, job: str) -> dict[str, Any]:
    """The Kubernetes Job with all tasks of a role; it fails with its first task, for the set to decide what follows."""
    container = {
        "name": CONTAINER,
        "image": image,
        "command": command(job),
        "ports": [{"containerPort": PORT}],
        **({"env": _environment(role, cluster)} if cluster else {}),
    }
    permanent = {"containerName": CONTAINER, "operator": "In", "values": list(range(1, 128))}
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": permanent}]},
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }


def _environment(role: str, cluster: dict[str, list[str]]) -> list[dict[str, Any]]:
    # Kubernetes puts in the value of a variable only if that stands before; a Job's own index comes behind all of ours.
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    task = f'{{"type":"{role}","index":$({_INDEX})}}'
    told = f'{{"cluster":{json.dumps(cluster, separators=(",", ":"))},"task":{task},"environment":"cloud"}}'
    return [{"name": _INDEX, "valueFrom": index}, {"name": "TF_CONFIG", "value": told}]
