"""What a service tells about a job."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class State(enum.Enum):
    """State of a job."""

    WAITING = "waiting"
    """No task has started yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class JobStatus:
    """A job at one time.

    Attributes:
      state: of the job.
      message: the service's own text about it.
      tasks: task, such as worker-0 → its state in the service's own words.
      failed: tasks that have failed.
      restarts: restarts of the job so far, as far as the service counts them.
    """

    state: State
    message: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    restarts: int = 0
