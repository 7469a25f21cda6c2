"""Plays Kubeflow's training operator on this machine: the tasks of a TFJob, each with the TF_CONFIG it would be given.

As `SetClusterSpec` of the operator's TFJob controller (release 1.7) does it, but for the addresses: instead of a
service per task, `train-taxi-worker-0.default.svc:2222`, each task has a port of the loopback device.
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
    tf_config: dict[str, Any] | None
    """What TF_CONFIG says; None where the operator sets none, because the job has a single task."""


def tasks(manifest: dict[str, Any]) -> list[Task]:
    """The tasks that the operator starts for a TFJob."""
    replicas = manifest["spec"]["tfReplicaSpecs"]
    counts = {kind.lower(): spec["replicas"] for kind, spec in replicas.items()}
    commands = {kind.lower(): _command(spec) for kind, spec in replicas.items()}
    cluster = _addresses({kind: count for kind, count in counts.items() if kind != "evaluator"})
    distributed = sum(counts.values()) != 1
    return [
        Task(kind, index, commands[kind], _tf_config(cluster, kind, index) if distributed else None)
        for kind, count in counts.items()
        for index in range(count)
    ]


def restarts(exit_code: int) -> bool:
    """Whether the operator starts a pod anew that ended with this code, its restart policy being ExitCode."""
    return exit_code >= 128


def _tf_config(cluster: dict[str, list[str]], kind: str, index: int) -> dict[str, Any]:
    return {"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"}


def _command(spec: dict[str, Any]) -> list[str]:
    containers = spec["template"]["spec"]["containers"]
    [command] = [list(container["command"]) for container in containers if container["name"] == _CONTAINER]
    return command


def _addresses(counts: dict[str, int]) -> dict[str, list[str]]:
    """A free address per task; all are found while all sockets are held, or one port would be found twice."""
    with contextlib.ExitStack() as held:
        sockets = {
            kind: [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
            for kind, count in counts.items()
        }
        return {kind: [f"127.0.0.1:{each.getsockname()[1]}" for each in found] for kind, found in sockets.items()}
