"""The result of the serving check, which is stored in the InfraBlessing artifact and printed in the run's summary."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TypedDict

FILE = "check.json"
"""Name of the file in the InfraBlessing artifact."""


class Measured(TypedDict, total=False):
    """The measurements of a check. A check that refuses the model stops early, so later measurements may be absent."""

    loaded_seconds: float
    sampled: int
    compared: int
    max_difference: float
    timed: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class ServingCheckResult:
    """The verdict of a serving check. A check that could not finish does not write a result.

    Attributes:
      server: Name of the model server: `server` for the local server, otherwise the container image.
      passed: Whether the model may be pushed.
      why: Why the model must not be pushed; None if it passed.
      loaded_seconds: Seconds from the start of the server until the model was loaded.
      sampled: Number of responses that were compared with predictions that the trained model made before its export.
      compared: Number of responses that were compared with predictions of the SavedModel, if there is no sample.
      max_difference: Largest difference between a response and the prediction that it is compared with;
        `ServingConfig.tolerance` defines the difference.
      timed: Number of requests of one row whose latency was measured, sent one after the other.
      p50_ms: Median latency of a request, in milliseconds.
      p99_ms: 99th percentile of the latency, in milliseconds.
    """

    server: str
    passed: bool
    why: str | None = None
    loaded_seconds: float | None = None
    sampled: int = 0
    compared: int = 0
    max_difference: float | None = None
    timed: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None

    def __str__(self) -> str:
        if not self.passed:
            return f"the serving check refuses the model: {self.why}"
        compared = {"the trained model": self.sampled, "the SavedModel": self.compared}
        parts = [f"{rows:,} responses match {model}" for model, rows in compared.items() if rows]
        parts += [] if self.p99_ms is None else [f"p99 {self.p99_ms:.1f} ms"]
        return "serving check passed" + (f": {', '.join(parts)}" if parts else "")

    def to_json(self) -> str:
        """Return the content of check.json."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ServingCheckResult:
        """Parse the content of check.json."""
        return cls(**json.loads(text))
