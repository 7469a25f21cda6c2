"""The load of the tasks of a training cluster on one machine, as a property of its ModelRun."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

PROPERTY = "tasks"
"""Name of the property: the loads as JSON."""
_LEAST_BYTES = 64 << 20
"""A ps that holds less cannot slow a training down or run out of memory."""
_MOST_TIMES = 2


@dataclass(frozen=True)
class TaskLoad:
    """What a task has used, over its restarts.

    Attributes:
      task: Name of the task, such as ps-0.
      peak_bytes: Maximum resident memory.
      cpu_seconds: CPU time, in seconds.
      sent_bytes: Bytes that it sent over TCP.
      received_bytes: Bytes that it received over TCP.
      variable_bytes: Bytes of the variables that it holds, with what the optimizer keeps for them; 0 unless it is a ps.
    """

    task: str
    peak_bytes: int
    cpu_seconds: float
    sent_bytes: int
    received_bytes: int
    variable_bytes: int

    @property
    def is_ps(self) -> bool:
        """Whether the task holds variables for others."""
        return self.task.startswith("ps-")

    def __str__(self) -> str:
        """Return the load as a line of a log."""
        held = f"holds {self.variable_bytes / 1e6:,.1f} MB of variables, " if self.is_ps else ""
        return (
            f"{self.task}: {held}at most {self.peak_bytes / 1e6:,.0f} MB of memory, {self.cpu_seconds:,.1f} CPU-s, "
            f"sent {self.sent_bytes / 1e6:,.1f} MB, received {self.received_bytes / 1e6:,.1f} MB"
        )


def to_json(loads: Sequence[TaskLoad]) -> str:
    """Return loads as JSON, for `from_json`."""
    return json.dumps([asdict(load) for load in loads])


def from_json(text: str) -> tuple[TaskLoad, ...]:
    """Return loads from JSON."""
    return tuple(TaskLoad(**fields) for fields in json.loads(text))


def describe_imbalance(loads: Sequence[TaskLoad]) -> str | None:
    """Describe a ps that holds more than twice the mean of the other ps, with a remedy; None if no ps does.

    Args:
      loads: Loads of all tasks.
    """
    servers = [load for load in loads if load.is_ps]
    if len(servers) < 2:
        return None
    largest = max(servers, key=lambda load: load.variable_bytes)
    others = (sum(load.variable_bytes for load in servers) - largest.variable_bytes) / (len(servers) - 1)
    if largest.variable_bytes < _LEAST_BYTES or largest.variable_bytes <= _MOST_TIMES * others:
        return None
    return (
        f"{largest.task} holds {largest.variable_bytes / 1e6:,.0f} MB of variables, each of the other "
        f"{len(servers) - 1} ps {others / 1e6:,.0f} MB on average: divide the largest table among all ps with "
        "training.strategy.partitioner fixed, or lower training.strategy.shard_over_mb"
    )
