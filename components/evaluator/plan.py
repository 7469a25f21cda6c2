"""The Evaluator's cache key in addition to TFMA's config: JSON in its parameters."""

from __future__ import annotations

from pydantic import Field

from components.base.config_section import Loss, Section, Task
from components.evaluator.config import LOSS_METRICS, EvaluationConfig, metric


class EvaluationPlan(Section):
    """Everything from the config that the verdict depends on."""

    evaluation: EvaluationConfig
    task: Task
    label: str
    """`data.label`, by which leakage is looked for."""
    labels: dict[str, str] = Field(default_factory=dict)
    """`data.labels`: name → label, if there are several; `label` is empty then."""
    label_name: str = ""
    """Which of several labels this plan is for; empty if for all of them, or for the only one."""
    label_columns: tuple[str, ...] | None = None
    """The columns of the label, which the model's preprocessing signatures read; None: not known, as for a model of own
    code."""
    feature_columns: tuple[str, ...] | None = None
    """The columns that the features are made of, in which leakage is looked for; None: not known, as with features of
    own code."""
    image_columns: tuple[str, ...] = ()
    """The columns of encoded images, of which the worst mistakes are shown."""
    class_weights: bool = False
    """Whether the model's rows were weighted by class, so that its probabilities are not those of the data."""
    weight: str | None = None
    """The column with the weight of each row; None: all rows count the same."""
    loss: Loss | None = None
    """The loss of the model, if it is not the task's own."""
    quantiles: tuple[float, ...] = ()
    """The quantiles that the model predicts; empty with another loss."""
    tweedie_power: float = 1.5
    """The power of the loss tweedie."""
    force_bless: str | None = None
    """The reason to bless this run's model even if checks fail. As a parameter it is part of the cache key, so that the
    verdict of a forced run is not reused by another one, and vice versa."""

    def of_labels(self) -> tuple[EvaluationPlan, ...]:
        """Return the plan of each of several labels, which are evaluated one by one; this plan if there is one."""
        if not self.labels:
            return (self,)
        return tuple(
            self.model_copy(
                update={
                    "evaluation": self.evaluation.of_label(name, is_first=not number),
                    "label": text,
                    "labels": {},
                    "label_name": name,
                    "image_columns": self.image_columns if not number else (),
                }
            )
            for number, (name, text) in enumerate(self.labels.items())
        )

    def folders(self, folder: str) -> tuple[str, ...]:
        """Return where the evaluation of each of `of_labels` is, that of the first in `folder` itself."""
        return (folder, *(f"{folder}/{name}" for name in list(self.labels)[1:]))

    def renamed(self, name: str, first: EvaluationPlan) -> str:
        """Return this label's name of a column or output that is called `name` for the first of several labels."""
        return self.named(name.removesuffix(f"_{first.label_name}")) if self.label_name else name

    def named(self, base: str) -> str:
        """Return the name of one of this label's columns, outputs or metrics; see `DeclaredLabel.named`."""
        return f"{base}_{self.label_name}" if self.label_name else base

    @property
    def metrics_of_loss(self) -> tuple[str, ...]:
        """The metrics of the model's loss, see LOSS_METRICS; a single quantile has no interval."""
        if self.loss == "tweedie":
            return (f"tweedie_deviance_at_{self.tweedie_power}",)
        metrics = LOSS_METRICS.get(self.loss, ()) if self.loss else ()
        return metrics[:1] if len(self.quantiles) == 1 else metrics

    @property
    def group(self) -> str | None:
        """The column of the groups; None if no metric is one of groups."""
        measured = self.evaluation.metrics_for(self.task, self.metrics_of_loss)
        return self.evaluation.group if any(metric(name, self.task).grouped for name in measured) else None

    @property
    def uncalibrated(self) -> str | None:
        """Why the model's probabilities are not those of the data; None if training should make them so."""
        return "class_weights" if self.class_weights else "the focal loss" if self.loss == "focal" else None
