"""The Evaluator's cache key in addition to TFMA's config: JSON in its parameters."""

from __future__ import annotations

from pydantic import Field

from components.base.config_section import Loss, Section, Task
from components.evaluator.config import FORECAST_METRICS, LOSS_METRICS, EvaluationConfig, metric
from components.features import feature_names
from components.features.expression import Label

PSEUDO_LABEL = "__is_permuted__"
"""Column of a batch that is 1 for pseudo anomalies, with which an anomaly model without a label is evaluated."""


class EvaluationPlan(Section):
    """Everything from the config that the verdict depends on."""

    evaluation: EvaluationConfig
    task: Task
    labels: tuple[Label, ...]
    """The labels, which are evaluated separately."""
    label_key: str = feature_names.LABEL
    """Name of the label in the outputs of `preprocessing`, or among the columns; see `Label.add_name`."""
    preprocessing: tuple[str, ...] = ()
    """Signatures of the model that compute label and features."""
    prediction_key: str | None = None
    """Name of the output that is the prediction; see `Label.add_name`. None if the model has a single output."""
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
    needed_columns: dict[str, str] = Field(default_factory=dict)
    """Column → reason why it is never proposed as unneeded, such as a protected attribute of persons."""
    past_columns: tuple[str, ...] = ()
    """Columns that `data.windows` computes from the past of a series. The past may predict the label, so leakage is not
    looked for in them."""
    force_bless: str | None = None
    """Reason to bless this run's model even if checks fail. As a parameter it is part of the cache key, so that a
    forced run never reuses the verdict of a normal run, nor the reverse."""

    @property
    def forecasts(self) -> bool:
        """Whether `data.windows` makes the rows, so that the model is compared with the seasonal naive forecast."""
        return bool(self.past_columns)

    def select_label(self, label: Label) -> EvaluationConfig:
        """Return the metrics and bounds of a label, under names that do not contain the label."""
        return self.evaluation.select_label(label.name, is_first=label == self.labels[0])

    def find_folder(self, label: Label, folder: str) -> str:
        """Return the folder of a label's evaluation in the folder of the artifact, which the first label uses."""
        return folder if label == self.labels[0] else f"{folder}/{label.name}"

    @property
    def metrics_of_loss(self) -> tuple[str, ...]:
        """The metrics of the model's loss, see LOSS_METRICS; a single quantile does not form an interval."""
        if self.loss == "tweedie":
            return (f"tweedie_deviance_at_{self.tweedie_power}",)
        metrics = LOSS_METRICS.get(self.loss, ()) if self.loss else ()
        return metrics[:1] if len(self.quantiles) == 1 else metrics

    @property
    def added_metrics(self) -> tuple[str, ...]:
        """The metrics of the loss and of forecasts, which precede the default metrics of the task."""
        return (*self.metrics_of_loss, *(FORECAST_METRICS if self.forecasts else ()))

    def find_group(self, label: Label) -> str | None:
        """Return the column of the groups; None without grouped metrics of the label."""
        measured = self.select_label(label).metrics_for(self.task, self.added_metrics)
        return self.evaluation.group if any(metric(name, self.task).grouped for name in measured) else None

    @property
    def uncalibrated(self) -> str | None:
        """Reason why the model's probabilities are not calibrated; None if training should calibrate them."""
        losses = {"focal": "the focal loss", "listwise": "the list-wise loss"}
        return "class_weights" if self.class_weights else losses.get(self.loss or "")
