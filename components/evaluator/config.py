"""The `evaluation` section: what is measured, over which slices, and what is good enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from components.names import did_you_mean
from components.section import Section, Task


@dataclass(frozen=True)
class Metric:
    """A metric of the config: TFMA's class for it, the tasks it fits, and which way is better."""

    tfma_class: str
    tasks: frozenset[Task]
    higher_is_better: bool = True


_BINARY = frozenset[Task]({"binary"})
_MULTICLASS = frozenset[Task]({"multiclass"})
_REGRESSION = frozenset[Task]({"regression"})

METRICS: dict[str, Metric] = {
    "auc": Metric("AUC", _BINARY),
    "auc_precision_recall": Metric("AUCPrecisionRecall", _BINARY),
    "binary_accuracy": Metric("BinaryAccuracy", _BINARY),
    "binary_crossentropy": Metric("BinaryCrossEntropy", _BINARY, higher_is_better=False),
    "precision": Metric("Precision", _BINARY),
    "recall": Metric("Recall", _BINARY),
    "accuracy": Metric("SparseCategoricalAccuracy", _MULTICLASS),
    "crossentropy": Metric("SparseCategoricalCrossentropy", _MULTICLASS, higher_is_better=False),
    "mean_squared_error": Metric("MeanSquaredError", _REGRESSION, higher_is_better=False),
    "mean_absolute_error": Metric("MeanAbsoluteError", _REGRESSION, higher_is_better=False),
}
DEFAULT_METRICS: dict[Task, tuple[str, ...]] = {
    "binary": ("auc", "auc_precision_recall", "binary_accuracy", "binary_crossentropy"),
    "multiclass": ("accuracy", "crossentropy"),
    "regression": ("mean_squared_error", "mean_absolute_error"),
}


class Threshold(Section):
    """When a model is good enough by one metric: against a bound, against the latest blessed model, or both."""

    min: float | None = None
    """The value has to be at least this."""
    max: float | None = None
    """The value has to be at most this."""
    worse_by: float | None = Field(default=None, ge=0)
    """How much worse than the latest blessed model the value may be; without such a model it always passes."""

    @model_validator(mode="after")
    def _says_something(self) -> Threshold:
        if self.min is None and self.max is None and self.worse_by is None:
            raise ValueError("expected min, max or worse_by, received none of them")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"expected min at most max, received min {self.min:g} and max {self.max:g}")
        return self


def _metric(name: str) -> str:
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}{did_you_mean(name, METRICS)}")
    return name


def _slice(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


MetricName = Annotated[str, AfterValidator(_metric)]
Slice = Annotated[tuple[str, ...], BeforeValidator(_slice)]


class EvaluationConfig(Section):
    """What is measured on the eval split, and the gate."""

    metrics: tuple[MetricName, ...] = ()
    """Metrics to compute; none named: those that fit the task."""
    slices: tuple[Slice, ...] = ()
    """Columns, or lists of columns, whose every value is measured apart, beside the whole."""
    thresholds: dict[MetricName, Threshold] = Field(min_length=1)
    """Metric → what is good enough. A gate without a threshold would bless anything, so at least one has to stand."""
    label_key: str | None = None
    """With your own run_fn: the key of the label, if not `label`."""
    preprocessing: tuple[str, ...] = ()
    """With your own run_fn: signatures of the model that make label and features from raw examples."""

    def metrics_for(self, task: Task) -> tuple[str, ...]:
        """The metrics of a run: those named, or the task's own, and every one that has a threshold."""
        named = self.metrics or DEFAULT_METRICS[task]
        return (*named, *(name for name in self.thresholds if name not in named))
