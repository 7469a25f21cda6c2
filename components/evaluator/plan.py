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
    """`data.label`, which leakage is measured against."""
    labels: dict[str, str] = Field(default_factory=dict)
    """`data.labels`: name → label, if there are several; `label` is empty then."""
    label_name: str = ""
    """Name of the label that this plan is for; empty if the plan covers all labels or the only label."""
    label_columns: tuple[str, ...] | None = None
    """Columns of the label, which the model's preprocessing signatures read; None if they are unknown, for example in
    own code."""
    feature_columns: tuple[str, ...] | None = None
    """Columns that the features are made of, in which leakage is looked for; None if they are unknown, as for features
    of own code."""
    image_columns: tuple[str, ...] = ()
    """Columns of encoded images; the report shows the worst mistakes of the first column."""
    class_weights: bool = False
    """Whether training weighted the rows by class, so that the model's probabilities differ from the data."""
    weight: str | None = None
    """Column of the rows' weights. If None, all rows count the same."""
    loss: Loss | None = None
    """Loss of the model; None for the default loss of the task."""
    quantiles: tuple[float, ...] = ()
    """Quantiles that the model predicts; empty unless it has the quantile loss."""
    tweedie_power: float = 1.5
    """Power of the tweedie loss."""
    force_bless: str | None = None
    """Reason to bless this run's model even if checks fail. As a parameter it is part of the cache key, so that a
    forced run never reuses the verdict of a normal run, nor the reverse."""

    def split_by_label(self) -> tuple[EvaluationPlan, ...]:
        """Return one plan per label, because labels are evaluated separately; with a single label, this plan."""
        if not self.labels:
            return (self,)
        return tuple(
            self.model_copy(
                update={
                    "evaluation": self.evaluation.select_label(name, is_first=not number),
                    "label": text,
                    "labels": {},
                    "label_name": name,
                    "image_columns": self.image_columns if not number else (),
                }
            )
            for number, (name, text) in enumerate(self.labels.items())
        )

    def folders(self, folder: str) -> tuple[str, ...]:
        """Return the folders of the labels' evaluations, in the order of `split_by_label`; the first is `folder`."""
        return (folder, *(f"{folder}/{name}" for name in list(self.labels)[1:]))

    def translate_name(self, name: str, first: EvaluationPlan) -> str:
        """Return this label's counterpart of a column or output of the first label that is called `name`."""
        return self.add_label_name(name.removesuffix(f"_{first.label_name}")) if self.label_name else name

    def add_label_name(self, base: str) -> str:
        """Return this label's name of a column, an output or a metric; see `DeclaredLabel.named`."""
        return f"{base}_{self.label_name}" if self.label_name else base

    @property
    def metrics_of_loss(self) -> tuple[str, ...]:
        """The metrics of the model's loss, see LOSS_METRICS; a single quantile does not form an interval."""
        if self.loss == "tweedie":
            return (f"tweedie_deviance_at_{self.tweedie_power}",)
        metrics = LOSS_METRICS.get(self.loss, ()) if self.loss else ()
        return metrics[:1] if len(self.quantiles) == 1 else metrics

    @property
    def group(self) -> str | None:
        """The column of the groups; None without grouped metrics."""
        measured = self.evaluation.metrics_for(self.task, self.metrics_of_loss)
        return self.evaluation.group if any(metric(name, self.task).grouped for name in measured) else None

    @property
    def uncalibrated(self) -> str | None:
        """Reason why the model's probabilities are not calibrated; None if training should calibrate them."""
        return "class_weights" if self.class_weights else "the focal loss" if self.loss == "focal" else None
