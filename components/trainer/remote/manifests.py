"""Manifests that start a config's training tasks on a cluster.

A TFJob (kubeflow.org/v1) for Kubeflow's training operator, release 1.x; a JobSet (jobset.x-k8s.io/v1alpha2), which
Kubeflow Trainer v2 installs instead of the TFJob; and a CustomJob for Vertex AI, in the form of its REST API.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from components.base.errors import InputError
from components.trainer.remote.config import WhereConfig

if TYPE_CHECKING:
    from components.trainer.config import TrainingConfig

CONTAINER = "tensorflow"
"""The container's name: the training operator adds TF_CONFIG only to a container of this name."""
PORT = 2222

_MAX_NAME_LENGTH = 40


def tasks(training: TrainingConfig) -> dict[str, int]:
    """Return the tasks by role (chief, worker, ps, evaluator, in this order) and how many of each; workers: at most.

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
    """Return the command of every task; TF_CONFIG gives its role.

    Args:
      job: path or URI of the job file.
    """
    return ["python", "-m", "components.trainer.cluster_task", job]


def name_of(pipeline: str, suffix: str) -> str:
    """Return the job's name: lowercase letters, digits and -, short enough for the suffixes of the tasks' host names.

    Args:
      pipeline: the pipeline's name, which is shortened.
      suffix: is not; it tells this job from others of the pipeline.
    """
    length = _MAX_NAME_LENGTH - len(suffix)
    return f"train-{pipeline}".replace("_", "-")[:length].rstrip("-") + suffix


@dataclass(frozen=True)
class Job:
    """A training as a job.

    Attributes:
      name: the job's name, see `name_of`.
      training: which tasks it has, and how often they are restarted.
      where: image, volumes, resources and service account of the tasks.
      file: path or URI of the job file.
      user: numbers of the user and the group that the tasks run as; None for those of the image.
    """

    name: str
    training: TrainingConfig
    where: WhereConfig
    file: str
    user: tuple[int, int] | None = None


_REPLICA = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}


def tfjob_manifest(job: Job) -> dict[str, Any]:
    """Return the TFJob that trains a config's model; the operator adds TF_CONFIG to each task.

    A task that exits with code 128 or more (ended by a signal) is restarted; a smaller code fails the job.

    Raises:
      InputError: a TFJob does not support the strategy.
    """
    counts = tasks(job.training)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": job.name},
        "spec": {
            # "": with a chief, the job has succeeded when the chief has.
            "successPolicy": "" if "chief" in counts else "AllWorkers",
            # Then running tasks, such as a ps, are stopped; the pods of finished ones remain for their logs.
            "runPolicy": {"backoffLimit": job.training.max_restarts, "cleanPodPolicy": "Running"},
            "tfReplicaSpecs": {_REPLICA[role]: _replicas(count, job) for role, count in counts.items()},
        },
    }


def _replicas(count: int, job: Job) -> dict[str, Any]:
    container = {
        "name": CONTAINER,
        "image": job.where.image,
        "command": command(job.file),
        "ports": [{"name": "tfjob-port", "containerPort": PORT}],
    }
    return {"replicas": count, "restartPolicy": "ExitCode", "template": {"spec": _pod(container, job)}}


def _pod(container: dict[str, Any], job: Job) -> dict[str, Any]:
    """Return the specification of a task's pod: its container, and what `training.where` adds."""
    where = job.where
    names = {path: f"volume-{number}" for number, path in enumerate(where.volumes)}
    if names:
        container["volumeMounts"] = [{"name": name, "mountPath": path} for path, name in names.items()]
    if where.resources:
        container["resources"] = {"requests": where.resources, "limits": where.resources}
    return {
        "containers": [container],
        **({"volumes": [{"name": names[path], **source} for path, source in where.volumes.items()]} if names else {}),
        **({"serviceAccountName": where.service_account} if where.service_account else {}),
        **({"securityContext": {"runAsUser": job.user[0], "runAsGroup": job.user[1]}} if job.user else {}),
    }


_INDEX = "TASK_INDEX"


def jobset_manifest(job: Job) -> dict[str, Any]:
    """Return the JobSet that trains a config's model, with the TF_CONFIG that the operator adds to a TFJob's tasks.

    A task that exits with code 128 or more (ended by a signal) restarts the whole set, and each task continues from the
    newest checkpoint; a smaller code fails the set. Workers of an elastic cluster are restarted one by one, and the
    `parallelism` of their Job may be changed while it runs; the others wait for none of them.

    Raises:
      InputError: a JobSet does not support the strategy.
    """
    name, counts = job.name, tasks(job.training)
    cluster = {role: _hosts(name, role, count) for role, count in counts.items() if role != "evaluator"}
    if not job.training.strategy.is_cluster:
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
                "maxRestarts": job.training.max_restarts,
                "rules": [{"name": "permanent", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
            },
            "replicatedJobs": [
                {"name": role, "replicas": 1, "template": {"spec": {**spec, **_elastic(role, job.training)}}}
                for role, count in counts.items()
                for spec in [_job(role, count, cluster, job)]
            ],
        },
    }


def _hosts(name: str, role: str, count: int) -> list[str]:
    """Return the host names of a JobSet's pods: <set>-<replicated job>-<job>-<pod>.<subdomain>."""
    return [f"{name}-{role}-0-{index}.{name}:{PORT}" for index in range(count)]


def _job(role: str, count: int, cluster: dict[str, list[str]], job: Job) -> dict[str, Any]:
    """Return the Kubernetes Job with all tasks of a role; it fails with its first failed task."""
    container = {
        "name": CONTAINER,
        "image": job.where.image,
        "command": command(job.file),
        "ports": [{"containerPort": PORT}],
        **({"env": _environment(role, cluster)} if cluster else {}),
    }
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [_permanent()]},
        "template": {"spec": {"restartPolicy": "Never", **_pod(container, job)}},
    }


def _permanent() -> dict[str, Any]:
    """Return the rule that fails a Job when a task ends with an error that a restart would not fix."""
    codes = {"containerName": CONTAINER, "operator": "In", "values": list(range(1, 128))}
    return {"action": "FailJob", "onExitCodes": codes}


def _evicted() -> dict[str, Any]:
    """Return the rule that replaces an evicted pod, as from a spot node, without counting a failure."""
    return {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def _elastic(role: str, training: TrainingConfig) -> dict[str, Any]:
    """Return the fields in which the Job of elastic workers differs: each worker is restarted alone."""
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


def vertex_manifest(job: Job) -> dict[str, Any]:
    """Return the CustomJob that trains a config's model; Vertex AI adds TF_CONFIG to each task.

    The first pool has one task, the chief; with synchronous workers it is worker 0. Unused pools are empty, and omitted
    at the end.

    Raises:
      InputError: the CustomJob does not support the strategy.
    """
    counts = tasks(job.training)
    if "chief" not in counts:
        counts = {**counts, "chief": 1, "worker": counts["worker"] - 1}
    pools = [_pool(counts.get(role, 0), job) for role in _POOLS]
    while not pools[-1]:
        pools.pop()
    return {
        "displayName": job.name,
        "jobSpec": {
            "workerPoolSpecs": pools,
            **({"serviceAccount": job.where.service_account} if job.where.service_account else {}),
            # Synchronous workers restart only together; with parameter servers one worker can restart alone.
            "scheduling": {"restartJobOnWorkerRestart": job.training.strategy.kind == "multi_worker"},
        },
    }


def _pool(count: int, job: Job) -> dict[str, Any]:
    if not count:
        return {}
    return {
        "machineSpec": {"machineType": job.where.machine},
        "replicaCount": count,
        "containerSpec": {"imageUri": job.where.image, "command": command(job.file)},
    }


MANIFESTS = {"tfjob": tfjob_manifest, "jobset": jobset_manifest, "vertex": vertex_manifest}
"""Kind → what makes its manifest."""
