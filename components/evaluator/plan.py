"""The Evaluator's cache key in addition to TFMA's config: JSON in its parameters."""

from __future__ import annotations

from components.config_section import Section, Task
from components.evaluator.config import EvaluationConfig


class EvaluationPlan(Section):
    """Everything from the config that the verdict depends on."""

    evaluation: EvaluationConfig
    task: Task
    label_columns: tuple[str, ...] | None = None
    """The columns of the label, which the model's preprocessing signatures read; None: not known, as for a model of own
    code."""
    force_bless: str | None = None
    """The reason to bless this run's model even if checks fail. As a parameter it is part of the cache key, so that the
    verdict of a forced run is not reused by another one, and vice versa."""
