"""The decisions of a binary model: its thresholds, and how the Trainer chose them.

The Trainer writes them into the model's folder, so that they are pushed with the model. The thresholds are also
constants of the model's graph, which returns the decision as the output `class`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from components.base.bounds import is_at_least
from components.results.json_result import JsonResult

FILE = "assets.extra/decisions.json"
"""Path of the file in the folder of a SavedModel."""


@dataclass(frozen=True)
class Decision:
    """The threshold of a label.

    Attributes:
      threshold: Smallest probability for which the model answers 1; a float32.
      goal: The goal in words, such as `highest f1`.
      bounded: Metric with a smallest value, precision or recall. None for other goals.
      least: Smallest value of the bounded metric.
      metrics: Metric → value on the validation rows at this threshold; empty without such rows.
      rows: Number of validation rows with a weight above 0.
      positives: Number of these rows with label 1.
    """

    threshold: float
    goal: str
    bounded: str | None = None
    least: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    rows: int = 0
    positives: int = 0

    def __str__(self) -> str:
        if not self.metrics:
            return f"the class is 1 from a probability of {self.threshold:.4g}; not measured on validation rows"
        rows = f"{self.rows:,} validation rows, {self.positives:,} with label 1"
        reached = "" if self.is_reached else ", which no threshold reaches"
        return f"the class is 1 from a probability of {self.threshold:.4g}: {self.goal}{reached}; on {rows}"

    @property
    def is_reached(self) -> bool:
        """Whether the bounded metric has its smallest value on the validation rows."""
        return self.bounded is None or self.least is None or is_at_least(self.metrics[self.bounded], self.least)


@dataclass(frozen=True)
class Decisions(JsonResult):
    """The content of the file.

    Attributes:
      labels: Name of a label, empty for the only label → its decision.
    """

    labels: dict[str, Decision]
