"""What the serving check has found, as it is written down and told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

FILE = "check.json"
"""In the InfraBlessing artifact."""


@dataclass
class Found:
    """What the check has found.

    Attributes:
      server: which one was asked.
      passed: whether the model may be pushed.
      why: it may not.
      loaded_seconds: from the server's start until the model was loaded.
      compared: answers that were held against the Evaluator's predictions.
      max_difference: the largest between them, as `tolerance` counts it.
      timed: requests for one row, one after the other, whose time was taken.
      p50_ms: median latency of a request.
      p99_ms: its 99th percentile.
    """

    server: str
    passed: bool = False
    why: str | None = None
    loaded_seconds: float | None = None
    compared: int = 0
    max_difference: float | None = None
    timed: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None

    def __str__(self) -> str:
        if not self.passed:
            return f"the serving check refuses the model: {self.why}"
        told = f"; {self.compared} answers as the Evaluator's" if self.compared else ""
        return f"served as a check{told}" + (f"; p99 {self.p99_ms:.1f} ms" if self.p99_ms is not None else "")

    def to_json(self) -> str:
        """The file's content."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Found:
        """What a file holds."""
        return cls(**json.loads(text))
