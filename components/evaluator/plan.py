"""The Evaluator's cache key in addition to TFMA's config: JSON in its parameters."""

from __future__ import annotations

from components.config_section import Section, Task
from components.evaluator.config import EvaluationConfig


class EvaluationPlan(Section):
    """Everything from the config that the verdict depends on."""

    evaluation: EvaluationConfig
    task: Task
    label: str
    """`data.label`, by which leakage is looked for."""
    label_columns: tuple[str, ...] | None = None
    """The columns of the label, which the model's preprocessing signatures read; None: not known, as for a model of own
    code."""
    feature_columns: tuple[str, ...] | None = None
    """The columns that the features are made of, in which leakage is looked for; None: not known, as with features of
    own code."""
    class_weights: bool = False
    """Whether the model's rows were weighted by class, so that its probabilities are not those of the data."""
    force_bless: str | None = None
    """The reason to bless this run's model even if checks fail. As a parameter it is part of the cache key, so that the
    verdict of a forced run is not reused by another one, and vice versa."""
