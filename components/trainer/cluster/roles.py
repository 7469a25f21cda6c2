"""Who a process is in a training cluster, as TF_CONFIG tells it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from components.errors import InputError

VARIABLE = "TF_CONFIG"
"""The environment variable that TensorFlow, Kubernetes' operators and Vertex AI agree on."""
ENVIRONMENT = {
    # A channel to a task that is gone fails at once instead of waiting for it to come back; TensorFlow's guide on
    # parameter server training asks for it.
    "GRPC_FAIL_FAST": "use_caller",
}
"""What else stands in the environment of every task."""


@dataclass(frozen=True)
class Role:
    """One task of a cluster.

    Attributes:
      kind: chief, worker, ps or evaluator; some clusters call their chief master.
      index: its number among its kind.
      cluster: kind → addresses.
    """

    kind: str
    index: int
    cluster: Mapping[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """As logs and errors call it."""
        return f"{self.kind}-{self.index}"

    @property
    def is_lead(self) -> bool:
        """Whether it is the one that writes the model: the chief, or the first worker where there is no chief."""
        return self.kind in _CHIEF or (
            self.kind == "worker" and self.index == 0 and not self.cluster.keys() & set(_CHIEF)
        )

    @property
    def is_server(self) -> bool:
        """Whether it only serves: a ps, or a worker that takes its steps from a chief beside a ps."""
        return self.kind == "ps" or (self.kind == "worker" and bool(self.cluster.get("ps")))

    @property
    def workers(self) -> int:
        """Tasks that compute gradients."""
        workers = len(self.cluster.get("worker", ()))
        return workers if self.cluster.get("ps") else workers + sum(len(self.cluster.get(kind, ())) for kind in _CHIEF)

    @property
    def tf_config(self) -> str:
        """The value of TF_CONFIG for it."""
        task = {"type": self.kind, "index": self.index}
        return json.dumps({"cluster": {kind: list(each) for kind, each in self.cluster.items()}, "task": task})


_CHIEF = ("chief", "master")


def role() -> Role | None:
    """This process's role, or None where no cluster is given.

    Raises:
      InputError: TF_CONFIG is no such thing.
    """
    told = os.environ.get(VARIABLE, "")
    try:
        config = json.loads(told or "{}")
        if not config.get("cluster"):
            return None
        task, cluster = config["task"], {kind: tuple(each) for kind, each in config["cluster"].items()}
        return Role(str(task["type"]), int(task["index"]), cluster)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{VARIABLE}: expected a JSON object with cluster and task, received {told!r}",
            "let the operator set it, or unset it and choose training.cluster: local",
        ) from error
