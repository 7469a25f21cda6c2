"""Stands in for Kubeflow's training operator on this machine: the tasks of a TFJob, each with its TF_CONFIG.

TF_CONFIG equals the operator's TF_CONFIG (`SetClusterSpec` and `genClusterSpec`, release 1.8.1), except for
the addresses: instead of a service per task, `train-taxi-worker-0.default.svc:2222`, each task has a port of the
loopback device. The controller lists every replica type in the cluster, the evaluator included.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import Any

_CONTAINER = "tensorflow"


@dataclass(frozen=True)
class Task:
    """One pod of a TFJob."""

    type: str
    """chief, worker, ps or evaluator."""
    index: int
    command: list[str]
    environment: dict[str, str]
    """Environment variables of the manifest."""
    tf_config: dict[str, Any] | None
    """The value of TF_CONFIG; None if the operator sets none, because the job has a single task."""


def tasks(manifest: dict[str, Any]) -> list[Task]:
    """Return the tasks that the operator starts for a TFJob."""
    replicas = manifest["spec"]["tfReplicaSpecs"]
    counts = {kind.lower(): spec["replicas"] for kind, spec in replicas.items()}
    containers = {kind.lower(): _find_container(spec) for kind, spec in replicas.items()}
    cluster = addresses(counts)
    distributed = sum(counts.values()) != 1
    return [
        Task(
            kind,
            index,
            list(containers[kind]["command"]),
            {variable["name"]: variable["value"] for variable in containers[kind].get("env", ())},
            _tf_config(cluster, kind, index) if distributed else None,
        )
        for kind, count in counts.items()
        for index in range(count)
    ]


def restarts(exit_code: int) -> bool:
    """Whether the operator restarts a pod with this exit code, under the restart policy ExitCode."""
    return exit_code >= 128


def _tf_config(cluster: dict[str, list[str]], kind: str, index: int) -> dict[str, Any]:
    return {"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"}


def _find_container(spec: dict[str, Any]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = spec["template"]["spec"]["containers"]
    [container] = [container for container in containers if container["name"] == _CONTAINER]
    return container


def addresses(counts: dict[str, int]) -> dict[str, list[str]]:
    """Return a free address per task; sockets stay open until all ports are chosen, so that none is chosen twice."""
    with contextlib.ExitStack() as stack:
        sockets = {
            kind: [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
            for kind, count in counts.items()
        }
        return {kind: [f"127.0.0.1:{sock.getsockname()[1]}" for sock in bound] for kind, bound in sockets.items()}
