"""A queue of Kueue on a test's Kubernetes, with a quota that the test changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.support.servers.kubernetes_cluster import Cluster

_API = "kueue.x-k8s.io/v1beta2"
_RESOURCE = "pods"
"""Kueue counts the pods of a job, which works for pods that do not request CPUs or memory."""


@dataclass(frozen=True)
class Queue:
    """A LocalQueue of the namespace `default`, and the ClusterQueue with its quota.

    Attributes:
      cluster: The cluster, on which Kueue runs.
      name: Name of the LocalQueue and of the ClusterQueue.
    """

    cluster: Cluster
    name: str = "training"

    def admit(self, pods: int) -> None:
        """Create the queue, or change its quota, and admit jobs.

        Args:
          pods: Maximum number of pods of all admitted jobs.
        """
        self._apply(pods, "None")

    def evict(self, pods: int) -> None:
        """Evict all admitted jobs, and hold them in the queue; `pods` is the quota as in `admit`."""
        self._apply(pods, "HoldAndDrain")

    def describe(self, job: str) -> str:
        """Return as JSON what Kueue reports of a job, such as the missing quota."""
        return json.dumps(
            [
                workload.get("status")
                for workload in self.cluster.get("workloads.kueue.x-k8s.io", "--namespace=default")
                if workload["metadata"]["ownerReferences"][0]["name"] == job
            ]
        )

    def _apply(self, pods: int, stop_policy: str) -> None:
        flavor = {"name": self.name, "resources": [{"name": _RESOURCE, "nominalQuota": pods}]}
        spec = {"resourceGroups": [{"coveredResources": [_RESOURCE], "flavors": [flavor]}], "namespaceSelector": {}}
        self.cluster.apply(
            _object("ResourceFlavor", self.name, {}),
            _object("ClusterQueue", self.name, {**spec, "stopPolicy": stop_policy}),
            _object("LocalQueue", self.name, {"clusterQueue": self.name}, namespace="default"),
        )


def _object(kind: str, name: str, spec: dict[str, Any], **metadata: str) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
