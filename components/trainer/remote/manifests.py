"""Manifests that start a config's training tasks on a cluster.

A JobSet (jobset.x-k8s.io/v1alpha2); a TrainJob (trainer.kubeflow.org/v1alpha1) for Kubeflow Trainer v2, which creates
that JobSet; a TFJob (kubeflow.org/v1) for Kubeflow's training operator 1.x, which is legacy; and a CustomJob for Vertex
AI, in the form of its REST API.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from components.base.errors import InputError
from components.trainer.cluster import tf_config
from components.trainer.remote.config import WhereConfig

if TYPE_CHECKING:
    from components.trainer.config import TrainingConfig

CONTAINER = "tensorflow"
"""Name of the container. The training operator adds TF_CONFIG only to a container of this name."""
PORT = 2222

_MAX_NAME_LENGTH = 40
_TRAINER_API = "trainer.kubeflow.org/v1alpha1"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_SCRATCH = "/tmp"  # noqa: S108 - in the container
_CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def tasks(training: TrainingConfig) -> dict[str, int]:
    """Return role → number of its tasks, in the order chief, worker, ps, evaluator; for workers the maximum.

    Raises:
      InputError: If manifests do not support the strategy.
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
    """Return the command of every task, which reads its role from TF_CONFIG.

    Args:
      job: Path or URI of the job file.
    """
    return ["python", "-m", "components.trainer.cluster_task", job]


def create_name(pipeline: str, suffix: str) -> str:
    """Return the job's name: lowercase letters, digits and -, short enough for the suffixes of the tasks' host names.

    Args:
      pipeline: Name of the pipeline, which is shortened.
      suffix: Distinguishes this job from other jobs of the pipeline, and is kept.
    """
    length = _MAX_NAME_LENGTH - len(suffix)
    return f"train-{pipeline}".replace("_", "-")[:length].rstrip("-") + suffix


@dataclass(frozen=True)
class Job:
    """A training as a job.

    Attributes:
      name: Name of the job, see `create_name`.
      training: The strategy, which determines the tasks, and the number of restarts.
      where: Image, volumes, resources and service account of the tasks.
      file: Path or URI of the job file.
      user: IDs of the user and the group that the tasks run as; if None, the user and the group of the image.
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
      InputError: If a TFJob does not support the strategy.
    """
    counts = tasks(job.training)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": _metadata(job),
        "spec": {
            # With "" and a chief, the job succeeds when the chief succeeds.
            "successPolicy": "" if "chief" in counts else "AllWorkers",
            # Stop running tasks, such as a ps, at the end of the job. Pods of finished tasks remain for their logs.
            "runPolicy": {"backoffLimit": job.training.max_restarts, "cleanPodPolicy": "Running"},
            "tfReplicaSpecs": {_REPLICA[role]: _replicas(role, count, job) for role, count in counts.items()},
        },
    }


def _replicas(role: str, count: int, job: Job) -> dict[str, Any]:
    container = _container(role, {"name": "tfjob-port", "containerPort": PORT}, job)
    return {"replicas": count, "restartPolicy": "ExitCode", "template": {"spec": _pod(role, container, job)}}


def _metadata(job: Job) -> dict[str, Any]:
    """Return the name of the job, and the label by which Kueue finds its queue."""
    labels = {"labels": {_QUEUE_LABEL: job.where.queue}} if job.where.queue else {}
    return {"name": job.name, **labels}


def _container(role: str, port: dict[str, Any], job: Job) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": job.where.image,
        "command": command(job.file),
        "ports": [port],
    }
    variables = _variables(role, job)
    if job.where.hardened:
        # Libraries write caches to the home directory, such as compiled GPU kernels.
        variables.append({"name": "HOME", "value": _SCRATCH})
        container["securityContext"] = _CONTAINER_SECURITY
    return {**container, **({"env": variables} if variables else {})}


def _variables(role: str, job: Job) -> list[dict[str, Any]]:
    """Return the environment variables that a task needs besides TF_CONFIG."""
    is_elastic = role == "worker" and job.training.strategy.is_elastic
    return [{"name": tf_config.ELASTIC_VARIABLE, "value": "true"}] if is_elastic else []


def _pod_security(job: Job) -> dict[str, Any]:
    user: dict[str, Any] = {"runAsUser": job.user[0], "runAsGroup": job.user[1]} if job.user else {}
    if not job.where.hardened:
        return user
    # Kubernetes does not start a container as root if runAsNonRoot is set.
    non_root = {} if job.user and job.user[0] == 0 else {"runAsNonRoot": True}
    return {**user, **non_root, "seccompProfile": {"type": "RuntimeDefault"}}


def _pod(role: str, container: dict[str, Any], job: Job) -> dict[str, Any]:
    """Return the specification of a task's pod: its container, and the settings of `training.where`."""
    where, task = job.where, job.where.task(role)
    volumes = dict(where.volumes)
    if where.hardened:
        volumes.setdefault(_SCRATCH, {"emptyDir": {}})
    if task.shared_memory:
        volumes["/dev/shm"] = {"emptyDir": {"medium": "Memory", "sizeLimit": task.shared_memory}}  # noqa: S108 - no file
    names = {path: f"volume-{number}" for number, path in enumerate(volumes)}
    if names:
        container["volumeMounts"] = [{"name": name, "mountPath": path} for path, name in names.items()]
    if task.resources:
        container["resources"] = {"requests": task.resources, "limits": task.resources}
    optional: dict[str, Any] = {
        "volumes": [{"name": names[path], **source} for path, source in volumes.items()],
        "serviceAccountName": where.service_account,
        "securityContext": _pod_security(job),
        "nodeSelector": task.node_selector,
        "tolerations": list(task.tolerations),
        "priorityClassName": task.priority_class,
        "terminationGracePeriodSeconds": where.grace_seconds,
        "topologySpreadConstraints": _spread(where.spread, job) if where.spread else None,
    }
    return {"containers": [container], **{name: value for name, value in optional.items() if value}}


_NAME_LABEL = {
    "jobset": "jobset.sigs.k8s.io/jobset-name",
    # The JobSet of a TrainJob has its name.
    "trainjob": "jobset.sigs.k8s.io/jobset-name",
    "tfjob": "training.kubeflow.org/job-name",
}
"""Kind → the label with the job's name that its controller adds to the pods."""


def _spread(topology: str, job: Job) -> list[dict[str, Any]]:
    """Return the constraint that spreads the tasks of a job over the values of a label of nodes, if possible."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": topology,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": _select_tasks(job),
        }
    ]


def _select_tasks(job: Job) -> dict[str, Any]:
    return {"matchLabels": {_NAME_LABEL[job.where.kind]: job.name}}


_INDEX = "TASK_INDEX"


def jobset_manifest(job: Job) -> dict[str, Any]:
    """Return the JobSet that trains a config's model, with the TF_CONFIG that the operator adds to a TFJob's tasks.

    A task that exits with code 128 or more (ended by a signal) restarts the whole set, and each task continues from the
    newest checkpoint; a smaller code fails the set. Workers of an elastic cluster are restarted one by one, without
    stopping other tasks, and the `parallelism` of their Job may change while it runs.

    Raises:
      InputError: If a JobSet does not support the strategy.
    """
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(job),
        "spec": _jobset_spec(job),
    }


def _jobset_spec(job: Job) -> dict[str, Any]:
    name, counts = job.name, tasks(job.training)
    cluster = {role: _hosts(name, role, count) for role, count in counts.items() if role != "evaluator"}
    if not job.training.strategy.is_cluster:
        cluster = {}
    return {
        "network": {"enableDNSHostnames": True, "subdomain": name},
        # At success, other tasks, such as a ps, are stopped.
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
    }


def _hosts(name: str, role: str, count: int) -> list[str]:
    """Return the host names of a JobSet's pods: <set>-<replicated job>-<job>-<pod>.<subdomain>."""
    return [f"{name}-{role}-0-{index}.{name}:{PORT}" for index in range(count)]


def _job(role: str, count: int, cluster: dict[str, list[str]], job: Job) -> dict[str, Any]:
    """Return the Kubernetes Job with all tasks of a role; it fails with its first failed task."""
    container = _container(role, {"containerPort": PORT}, job)
    if cluster:
        container["env"] = [*container.get("env", ()), *_environment(role, cluster)]
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [_permanent_failure_rule()]},
        "template": {"spec": {"restartPolicy": "Never", **_pod(role, container, job)}},
    }


def _permanent_failure_rule() -> dict[str, Any]:
    """Return the rule that fails a Job when a task ends with an error that a restart would not fix."""
    codes = {"containerName": CONTAINER, "operator": "In", "values": list(range(1, 128))}
    return {"action": "FailJob", "onExitCodes": codes}


def _eviction_rule() -> dict[str, Any]:
    """Return the rule that replaces an evicted pod, for example of a spot node, without counting a failure."""
    return {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def _elastic(role: str, training: TrainingConfig) -> dict[str, Any]:
    """Return the fields that differ for the Job of elastic workers, whose workers are restarted one by one."""
    if role != "worker" or not training.strategy.is_elastic:
        return {}
    return {
        "parallelism": training.strategy.workers,
        "backoffLimit": training.max_restarts,
        "podFailurePolicy": {"rules": [_eviction_rule(), _permanent_failure_rule()]},
    }


def _environment(role: str, cluster: dict[str, list[str]]) -> list[dict[str, Any]]:
    # Kubernetes expands $(NAME) only for variables defined earlier in the list, but a Job adds its index at the end.
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    task = f'{{"type":"{role}","index":$({_INDEX})}}'
    value = f'{{"cluster":{json.dumps(cluster, separators=(",", ":"))},"task":{task},"environment":"cloud"}}'
    return [{"name": _INDEX, "valueFrom": index}, {"name": tf_config.VARIABLE, "value": value}]


def trainjob_manifest(job: Job) -> dict[str, Any]:
    """Return the TrainJob that trains a config's model with the runtime of `companion_manifests`.

    Kubeflow Trainer v2 creates a JobSet from the runtime, with the name of the TrainJob. Nothing in the runtime has the
    label `trainer.kubeflow.org/trainjob-ancestor-step`, so the TrainJob does not change the tasks: it has one container
    and one number of nodes, but the tasks have several roles.
    """
    return {
        "apiVersion": _TRAINER_API,
        "kind": "TrainJob",
        "metadata": _metadata(job),
        "spec": {
            "runtimeRef": {"apiGroup": _TRAINER_API.partition("/")[0], "kind": "TrainingRuntime", "name": job.name}
        },
    }


def companion_manifests(job: Job) -> list[dict[str, Any]]:
    """Return the objects that must exist before a job is created; each has the name of the job."""
    companions = []
    if job.where.kind == "trainjob":
        companions.append(
            {
                "apiVersion": _TRAINER_API,
                "kind": "TrainingRuntime",
                "metadata": {"name": job.name, "labels": {"trainer.kubeflow.org/framework": "tensorflow"}},
                "spec": {"template": {"spec": _jobset_spec(job)}},
            }
        )
    if job.where.isolated:
        port = {"protocol": "TCP", "port": PORT}
        companions.append(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {"name": job.name},
                "spec": {
                    "podSelector": _select_tasks(job),
                    "policyTypes": ["Ingress"],
                    "ingress": [{"from": [{"podSelector": _select_tasks(job)}], "ports": [port]}],
                },
            }
        )
    return companions


_POOLS = ("chief", "worker", "ps", "evaluator")
"""Roles of the first to the fourth pool; Vertex AI derives the role from the position."""


def vertex_manifest(job: Job) -> dict[str, Any]:
    """Return the CustomJob that trains a config's model; Vertex AI adds TF_CONFIG to each task.

    The first pool has one task, the chief; with synchronous workers it is worker 0. Unused pools are empty, and omitted
    at the end.

    Raises:
      InputError: If the CustomJob does not support the strategy.
    """
    counts = tasks(job.training)
    if "chief" not in counts:
        counts = {**counts, "chief": 1, "worker": counts["worker"] - 1}
    pools = [_pool(role, counts.get(role, 0), job) for role in _POOLS]
    while not pools[-1]:
        pools.pop()
    return {
        "displayName": job.name,
        "jobSpec": {
            "workerPoolSpecs": pools,
            **({"serviceAccount": job.where.service_account} if job.where.service_account else {}),
            # Synchronous workers restart only together; with parameter servers one worker can restart alone.
            "scheduling": {
                "restartJobOnWorkerRestart": job.training.strategy.kind == "multi_worker",
                **({"strategy": "SPOT"} if job.where.spot else {}),
            },
        },
    }


def _pool(role: str, count: int, job: Job) -> dict[str, Any]:
    if not count:
        return {}
    # With synchronous workers, the first pool has worker 0.
    task = job.where.task("worker" if role == "chief" and "chief" not in tasks(job.training) else role)
    accelerators = {"acceleratorType": task.accelerator, "acceleratorCount": task.accelerators}
    return {
        "machineSpec": {"machineType": task.machine, **(accelerators if task.accelerator else {})},
        "replicaCount": count,
        "containerSpec": {
            "imageUri": job.where.image,
            "command": command(job.file),
            **({"env": variables} if (variables := _variables(role, job)) else {}),
        },
    }


MANIFESTS = {
    "jobset": jobset_manifest,
    "trainjob": trainjob_manifest,
    "tfjob": tfjob_manifest,
    "vertex": vertex_manifest,
}
"""Kind → function that creates its manifest."""
