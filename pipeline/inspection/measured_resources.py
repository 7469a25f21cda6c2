"""Suggests the resources of containers from what the nodes of a run have used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_CPU_MARGIN, _MEMORY_MARGIN = 1.25, 1.5
"""Factors for what a run did not need but a later run may: memory is the larger one, because a container that exceeds
its memory is killed, and a container that exceeds its cores is only slower."""
_CPU_STEP, _MEMORY_STEP_GB = 0.25, 0.5
_MIN_CPU = 1.0
"""Each container imports TensorFlow, which a node on one machine gets from the fork server; a smaller limit would only
make that slower."""
_BYTES_PER_MB, _BYTES_PER_GB = 1 << 20, 1e9


def suggest_resources(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return node → `cpu` and `memory_gb`, as in the section `kubeflow.resources`.

    Args:
      nodes: Node → state, seconds, cpu_seconds and peak_memory_mb (MiB). Nodes that did not run, for example because
        the cache has answered, are left out.
    """
    return {
        name: {
            "cpu": max(_MIN_CPU, _round_up(_CPU_MARGIN * node["cpu_seconds"] / node["seconds"], _CPU_STEP)),
            "memory_gb": _round_up(
                _MEMORY_MARGIN * node["peak_memory_mb"] * _BYTES_PER_MB / _BYTES_PER_GB, _MEMORY_STEP_GB
            ),
        }
        for name, node in nodes.items()
        if node["state"] == "done" and node["cpu_seconds"] and node["peak_memory_mb"] and node["seconds"]
    }


def _round_up(value: float, step: float) -> float:
    return max(1, math.ceil(value / step)) * step
