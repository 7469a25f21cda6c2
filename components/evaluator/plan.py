"""What the Evaluator depends on beside TFMA's config, as JSON in its parameters."""

from __future__ import annotations

from pydantic import Field

from components.evaluator.config import EvaluationConfig
from components.section import Section, Task


class EvaluationPlan(Section):
    """Everything that decides what the gate says, and what is kept of the evaluation."""

    evaluation: EvaluationConfig
    task: Task
    predictions: int = Field(default=64, ge=0)
    """How many rows are recorded with the model's predictions, for the serving check."""
    force_bless: str | None = None
    """Why this run's model is blessed whatever the thresholds say. As a parameter it is part of the cache key: no run
    takes over the verdict of one that was forced, or the other way round."""
