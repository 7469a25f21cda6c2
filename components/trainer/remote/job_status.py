"""The status of a job, as a service reports it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class State(enum.Enum):
    """State of a job."""

    QUEUED = "queued"
    """A queue has suspended the job until there are resources for all tasks."""
    WAITING = "waiting"
    """All tasks are still waiting."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class JobStatus:
    """The status of a job at one time.

    Attributes:
      state: State of the job.
      message: The service's message about the job.
      tasks: Task, such as worker-0 → its state in the service's words.
      failed: Tasks that have failed.
      restarts: Number of restarts so far, as far as the service counts them.
    """

    state: State
    message: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    restarts: int = 0
