"""The `evaluation` section: what is measured, over which slices, and what is good enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from components.names import did_you_mean
from components.section import Section, Task

Better = Literal["higher", "lower", "nearer 1"]


@dataclass(frozen=True)
class Metric:
    """A metric of the config.

    Attributes:
      tfma_class: TFMA's class for it.
      tasks: those it fits.
      better: which way is better.
      both_classes: whether it means nothing over rows whose labels are all alike.
      module: where the class is, if not in TFMA.
    """

    tfma_class: str
    tasks: frozenset[Task]
    better: Better = "higher"
    both_classes: bool = False
    module: str = ""


_OURS = "components.evaluator.calibration"
_BINARY = frozenset[Task]({"binary"})
_MULTICLASS = frozenset[Task]({"multiclass"})
_REGRESSION = frozenset[Task]({"regression"})

METRICS: dict[str, Metric] = {
    "auc": Metric("AUC", _BINARY, both_classes=True),
    "auc_precision_recall": Metric("AUCPrecisionRecall", _BINARY, both_classes=True),
    "binary_accuracy": Metric("BinaryAccuracy", _BINARY),
    "binary_crossentropy": Metric("BinaryCrossEntropy", _BINARY, better="lower"),
    "calibration": Metric("HistogramCalibration", _BINARY, better="nearer 1", module=_OURS),
    "expected_calibration_error": Metric("ExpectedCalibrationError", _BINARY, better="lower", module=_OURS),
    "precision": Metric("Precision", _BINARY),
    "recall": Metric("Recall", _BINARY),
    "accuracy": Metric("SparseCategoricalAccuracy", _MULTICLASS),
    "crossentropy": Metric(
        "MulticlassCrossentropy", _MULTICLASS, better="lower", module="components.evaluator.crossentropy"
    ),
    "mean_squared_error": Metric("MeanSquaredError", _REGRESSION, better="lower"),
    "mean_absolute_error": Metric("MeanAbsoluteError", _REGRESSION, better="lower"),
}
"""`calibration` is the mean prediction, divided by the mean label; `expected_calibration_error` is how far the two are
apart in each of ten bins of predictions, on average. No class of ours has a name of TFMA's: its own would be taken."""
DEFAULT_METRICS: dict[Task, tuple[str, ...]] = {
    "binary": ("auc", "auc_precision_recall", "binary_accuracy", "binary_crossentropy", "calibration"),
    "multiclass": ("accuracy", "crossentropy"),
    "regression": ("mean_squared_error", "mean_absolute_error"),
}

Rate = Literal["false_positive_rate", "false_negative_rate", "positive_rate"]
RATES: dict[Rate, str] = {
    "false_positive_rate": "FallOut",
    "false_negative_rate": "MissRate",
    "positive_rate": "PredictedPositiveRate",
}
"""What is measured of every group of people → TFMA's class for it."""


class Threshold(Section):
    """When a model is good enough by one metric: against a bound, against the latest blessed model, or both."""

    min: float | None = Field(default=None, allow_inf_nan=False)
    """The value has to be at least this."""
    max: float | None = Field(default=None, allow_inf_nan=False)
    """The value has to be at most this."""
    worse_by: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """How much worse than the latest blessed model the value may be; without such a model it always passes."""
    worse_by_fraction: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The same, as a fraction of that model's value: 0.02 is two percent."""

    @model_validator(mode="after")
    def _says_something(self) -> Threshold:
        if not any(bound is not None for bound in (self.min, self.max, self.worse_by, self.worse_by_fraction)):
            raise ValueError("expected min, max, worse_by or worse_by_fraction, received none of them")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"expected min at most max, received min {self.min:g} and max {self.max:g}")
        return self


class FairnessConfig(Section):
    """How differently a model may treat groups of people."""

    column: str
    """The column that tells the groups apart, such as gender; it need not be a feature."""
    at: float = Field(default=0.5, gt=0, lt=1)
    """The probability from which on a prediction counts as positive."""
    max_gap: dict[Rate, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """Rate → how far apart it may be in any two groups: false_positive_rate, false_negative_rate, positive_rate. A rate
    that is not named is measured, and gates nothing."""


def _metric(name: str) -> str:
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}{did_you_mean(name, METRICS)}")
    return name


def _slice(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _some_slice(name: str) -> str:
    column, equals, value = name.partition("=")
    if not column.strip() or (equals and not value.strip()):
        raise ValueError(f"expected a column, or one value of it as in payment_type = Cash; received {name!r}")
    return name


MetricName = Annotated[str, AfterValidator(_metric)]
Slice = Annotated[tuple[str, ...], BeforeValidator(_slice)]
SliceName = Annotated[str, AfterValidator(_some_slice)]
Thresholds = Annotated[dict[MetricName, Threshold], Field(min_length=1)]


def slice_of(name: str) -> tuple[str, str | None]:
    """The column of a name under `slice_thresholds`, and the value, if it is about one only."""
    column, equals, value = name.partition("=")
    return column.strip(), value.strip() if equals else None


class EvaluationConfig(Section):
    """What is measured on the eval split, and the gate."""

    metrics: tuple[MetricName, ...] = ()
    """Metrics to compute; none named: those that fit the task."""
    slices: tuple[Slice, ...] = ()
    """Columns, or lists of columns, whose every value is measured apart, beside the whole."""
    thresholds: Thresholds
    """Metric → what is good enough, on the whole eval split. A gate without a threshold would bless anything, so at
    least one has to stand."""
    slice_thresholds: dict[SliceName, Thresholds] = Field(default_factory=dict)
    """Column → metric → what is good enough in the slice of every value; `COLUMN = VALUE` is about one value only.
    These slices need not stand in `slices` too."""
    min_examples: int = Field(default=50, ge=1)
    """A slice with fewer rows is measured, but not judged: its values are mostly chance."""
    fairness: FairnessConfig | None = None
    """Rates per group of people, and how far apart they may be; of a binary task."""
    label_key: str | None = None
    """With your own run_fn: the key of the label, if not `label`."""
    preprocessing: tuple[str, ...] = ()
    """With your own run_fn: signatures of the model that make label and features from raw examples."""

    @model_validator(mode="before")
    @classmethod
    def _not_forced(cls, values: Any) -> Any:
        if isinstance(values, dict) and "force_bless" in values:
            raise ValueError(
                "force_bless stands in no config, or it would bless every model from now on; "
                "say --force-bless REASON on the command line, for one run"
            )
        return values

    def metrics_for(self, task: Task) -> tuple[str, ...]:
        """The metrics of a run: those named, or the task's own, and every one that has a threshold."""
        thresholds = (self.thresholds, *self.slice_thresholds.values())
        named = (*(self.metrics or DEFAULT_METRICS[task]), *(name for each in thresholds for name in each))
        return tuple(dict.fromkeys(named))

    def columns(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Every column that the section names, with the field it stands in."""
        for index, names in enumerate(self.slices):
            yield from ((("slices", index, name), name) for name in names)
        for name in self.slice_thresholds:
            yield ("slice_thresholds", name), slice_of(name)[0]
        if self.fairness:
            yield ("fairness", "column"), self.fairness.column
