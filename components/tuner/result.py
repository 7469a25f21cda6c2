"""The trials of a search, as the Tuner writes them to `trials.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FILE = "trials.json"
"""The file in the `tuner_results` artifact with all trials, the best first."""
COMPLETED, STOPPED, FAILED = "completed", "stopped", "failed"


@dataclass(frozen=True)
class Trial:
    """A trial of a search.

    Attributes:
      trial: ID of the trial.
      state: completed: it trained for all steps; stopped: by `tune.halving`; failed.
      values: Tuned field → its value.
      loss: The loss on the validation part that it was compared by last; None if it has failed.
      steps: Number of steps so far; None if it has failed at once, or does not train in steps.
      seconds: Duration of its processes.
      curve: The step and the loss of every evaluation.
      rungs: The step and the loss at the rungs of `tune.halving`; empty without it.
      why: Reason of a failure.
    """

    trial: str
    state: str
    values: Mapping[str, Any]
    loss: float | None
    seconds: float
    steps: int | None = None
    curve: list[tuple[int, float]] = field(default_factory=list)
    rungs: list[tuple[int, float | None]] = field(default_factory=list)
    why: str = ""


def parse(text: str) -> tuple[Trial, ...]:
    """Parse `trials.json`, also of an earlier version without curves."""
    return tuple(Trial(**record) for record in json.loads(text))
