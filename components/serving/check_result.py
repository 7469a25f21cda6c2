"""The result of the serving check, as it is written to the InfraBlessing artifact and printed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TypedDict

FILE = "check.json"
"""Name of the file in the InfraBlessing artifact."""


class Measured(TypedDict, total=False):
    """What a check measures, as far as it gets before it refuses the model; see ServingCheckResult."""

    loaded_seconds: float
    sampled: int
    compared: int
    max_difference: float
    timed: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class ServingCheckResult:
    """The verdict of a serving check. A check that could not finish has none.

    Attributes:
      server: The name of the server.
      passed: Whether the model may be pushed.
      why: The reason if it may not.
      loaded_seconds: From the server's start until the model was loaded.
      sampled: Answers that were compared with the predictions of the trained model before its export.
      compared: Answers that were compared with the predictions of the SavedModel.
      max_difference: The largest difference between them, as `tolerance` defines it.
      timed: Number of requests for one row, sent one after the other.
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
        answers = f"; {self.compared} answers as predicted" if self.compared else ""
        return f"served as a check{answers}" + (f"; p99 {self.p99_ms:.1f} ms" if self.p99_ms is not None else "")

    def to_json(self) -> str:
        """Return the file's content."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ServingCheckResult:
        """Read the file's content."""
        return cls(**json.loads(text))
