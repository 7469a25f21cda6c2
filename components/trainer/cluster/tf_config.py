"""The cluster role of a process, parsed from TF_CONFIG."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.base.errors import InputError

VARIABLE = "TF_CONFIG"
"""The environment variable that TensorFlow, Kubernetes operators and Vertex AI agree on."""
ELASTIC_VARIABLE = "ELASTIC_WORKER"
"""The environment variable of workers without which the training continues. They end at SIGTERM at once."""

_CHIEF = "chief"
_EVALUATOR = "evaluator"


@dataclass(frozen=True)
class Role:
    """One task of a cluster.

    Attributes:
      kind: `chief`, `worker`, `ps` or `evaluator`.
      index: Number of the task among the tasks of its kind.
      cluster: Kind → addresses, without the evaluator; see `remove_evaluator`.
    """

    kind: str
    index: int
    cluster: Mapping[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """The task's name in logs and errors, such as worker-0."""
        return f"{self.kind}-{self.index}"

    @property
    def is_evaluator(self) -> bool:
        """Whether the task evaluates the checkpoints of the other tasks."""
        return self.kind == _EVALUATOR

    @property
    def is_lead(self) -> bool:
        """Whether the task writes the model: the chief, or the first worker of a cluster without a chief."""
        return self.kind == _CHIEF or (self.kind == "worker" and self.index == 0 and _CHIEF not in self.cluster)

    @property
    def is_server(self) -> bool:
        """Whether the task runs a TensorFlow server: a ps, or a worker of a cluster with ps."""
        return self.kind == "ps" or (self.kind == "worker" and bool(self.cluster.get("ps")))

    @property
    def is_on_one_machine(self) -> bool:
        """Whether all tasks have addresses on the loopback interface."""
        return all(_is_loopback(address) for addresses in self.cluster.values() for address in addresses)

    @property
    def workers(self) -> int:
        """Number of tasks that compute gradients."""
        workers = len(self.cluster.get("worker", ()))
        return workers if self.cluster.get("ps") else workers + len(self.cluster.get(_CHIEF, ()))

    @property
    def tf_config(self) -> str:
        """The task's value of TF_CONFIG."""
        task = {"type": self.kind, "index": self.index}
        return json.dumps(
            {"cluster": {kind: list(addresses) for kind, addresses in self.cluster.items()}, "task": task}
        )


def role() -> Role | None:
    """Return the role of this process; None if TF_CONFIG is unset or does not contain a cluster.

    Raises:
      InputError: If TF_CONFIG is malformed.
    """
    value = os.environ.get(VARIABLE, "")
    try:
        config = json.loads(value or "{}")
        if not config.get("cluster"):
            return None
        task, cluster = (
            config["task"],
            {kind: tuple(addresses) for kind, addresses in _select_training_cluster(config).items()},
        )
        return Role(str(task["type"]), int(task["index"]), cluster)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{VARIABLE}: expected a JSON object with cluster and task, received {value!r}",
            "let the operator set it, or unset it",
        ) from error


def remove_evaluator() -> None:
    """Remove the evaluator from the cluster in this process's TF_CONFIG, which TensorFlow's strategies parse.

    Kubeflow's training operator lists it. It does not run a TensorFlow server, so a coordinator that considers it a
    task of the cluster would wait for it forever.

    Raises:
      InputError: If TF_CONFIG is malformed.
    """
    if role() is not None:
        config = json.loads(os.environ[VARIABLE])
        os.environ[VARIABLE] = json.dumps({**config, "cluster": _select_training_cluster(config)})


def _select_training_cluster(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return kind → addresses of the tasks that train."""
    return {kind: addresses for kind, addresses in config["cluster"].items() if kind != _EVALUATOR}


def _is_loopback(address: str) -> bool:
    """Whether a host:port is on the loopback interface; names other than localhost are not resolved."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
