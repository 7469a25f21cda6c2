"""The `evaluation` section: metrics, slices and bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from components.base.config_section import Loss, Section, Task
from components.base.names import did_you_mean
from components.base.registry import Registry

Better = Literal["higher", "lower", "nearer 1"]
Reaction = Literal["refuse", "warn"]


@dataclass(frozen=True)
class Metric:
    """A metric of the config.

    Attributes:
      tfma_class: its class in TFMA, or in `module`.
      tasks: the tasks that it can be used for.
      better: which values are better.
      both_classes: whether it is undefined for rows with constant labels.
      module: the module of the class, if it is not TFMA's.
      options: arguments of the class besides its name.
      quantiles: whether it is a metric of the quantiles that a model predicts, which it takes as an argument.
      grouped: whether it is a mean over the groups of `evaluation.group`.
      recommended: whether it is one of the items that a retrieval recommends.
    """

    tfma_class: str
    tasks: frozenset[Task]
    better: Better = "higher"
    both_classes: bool = False
    module: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    quantiles: bool = False
    grouped: bool = False
    recommended: bool = False


_OURS = "components.evaluator.calibration"
_ERRORS = "components.evaluator.error_metrics"
_QUANTILES = "components.evaluator.quantile_metrics"
_RANKING = "components.evaluator.ranking_metrics"
_RETRIEVED = "components.evaluator.retrieval_metrics"
_BINARY = frozenset[Task]({"binary"})
_MULTICLASS = frozenset[Task]({"multiclass"})
_REGRESSION = frozenset[Task]({"regression"})
_RETRIEVAL = frozenset[Task]({"retrieval"})


def _of_groups(made: str) -> Metric:
    return Metric(made, _BINARY, both_classes=True, module=_RANKING, grouped=True)


_BUILT_IN: dict[str, Metric] = {
    "auc": Metric("ScoreArea", _BINARY, both_classes=True, module=_OURS),
    "auc_precision_recall": Metric("ScorePrecisionRecallArea", _BINARY, both_classes=True, module=_OURS),
    "binary_accuracy": Metric("BinaryAccuracy", _BINARY),
    "binary_crossentropy": Metric("BinaryCrossEntropy", _BINARY, better="lower"),
    "calibration": Metric("HistogramCalibration", _BINARY, better="nearer 1", module=_OURS),
    "expected_calibration_error": Metric("ExpectedCalibrationError", _BINARY, better="lower", module=_OURS),
    "precision": Metric("Precision", _BINARY),
    "recall": Metric("Recall", _BINARY),
    "f1": Metric("F1Score", _BINARY),
    "brier_score": Metric("MeanSquaredError", _BINARY, better="lower"),
    "gauc": _of_groups("GroupedAuc"),
    "mrr": _of_groups("MeanReciprocalRank"),
    "accuracy": Metric("SparseCategoricalAccuracy", _MULTICLASS),
    "crossentropy": Metric(
        "MulticlassCrossentropy", _MULTICLASS, better="lower", module="components.evaluator.crossentropy"
    ),
    "mean_squared_error": Metric("MeanSquaredError", _REGRESSION, better="lower"),
    "mean_absolute_error": Metric("MeanAbsoluteError", _REGRESSION, better="lower"),
    "root_mean_squared_error": Metric("RootOfSquaredErrors", _REGRESSION, better="lower", module=_ERRORS),
    "mean_absolute_percentage_error": Metric("MeanAbsolutePercentageError", _REGRESSION, better="lower"),
    "r_squared": Metric("ExplainedShare", _REGRESSION, module=_ERRORS),
    "poisson_deviance": Metric("MeanDeviance", _REGRESSION, better="lower", module=_ERRORS, options={"power": 1}),
    "quantile_loss": Metric("MeanQuantileLoss", _REGRESSION, better="lower", module=_QUANTILES, quantiles=True),
    "interval_coverage": Metric("IntervalCoverage", _REGRESSION, module=_QUANTILES, quantiles=True),
    "interval_width": Metric("IntervalWidth", _REGRESSION, better="lower", module=_QUANTILES, quantiles=True),
}
"""`calibration` is the mean prediction divided by the mean label; `expected_calibration_error` is the mean difference
of the two over ten bins of predictions. TFMA looks for a class among its own first, so ours have other names."""

METRICS: Registry[Metric] = Registry(
    "metrics",
    _BUILT_IN,
    "a components.evaluator.config.Metric",
    lambda entry: isinstance(entry, Metric),
)
"""Name → metric; installed packages add metrics to the group `tfx_pipeline.metrics`."""

RETRIEVAL_METRICS = {"mrr": Metric("ItemReciprocalRank", _RETRIEVAL, module=_RETRIEVED)}
"""Those of a retrieval, whose names have another meaning in other tasks."""

NUMBERED_METRICS: tuple[tuple[str, Metric, str], ...] = (
    ("precision_at_0.7", Metric("Precision", _BINARY), "thresholds"),
    ("recall_at_0.7", Metric("Recall", _BINARY), "thresholds"),
    ("f1_at_0.7", Metric("F1Score", _BINARY), "thresholds"),
    ("binary_accuracy_at_0.7", Metric("BinaryAccuracy", _BINARY), "threshold"),
    ("precision_at_100", Metric("PrecisionOfTop", _BINARY, module=_OURS), "rows"),
    ("recall_at_100", Metric("RecallOfTop", _BINARY, module=_OURS), "rows"),
    ("ndcg_at_10", _of_groups("MeanDiscountedGain"), "rows"),
    ("mrr_at_10", _of_groups("MeanReciprocalRank"), "rows"),
    ("group_recall_at_10", _of_groups("GroupedRecall"), "rows"),
    ("group_precision_at_10", _of_groups("GroupedPrecision"), "rows"),
    ("recall_at_10", Metric("ItemRecall", _RETRIEVAL, module=_RETRIEVED), "rows"),
    ("ndcg_at_10", Metric("ItemDiscountedGain", _RETRIEVAL, module=_RETRIEVED), "rows"),
    ("mrr_at_10", Metric("ItemReciprocalRank", _RETRIEVAL, module=_RETRIEVED), "rows"),
    ("group_recall_at_10", Metric("GroupedItemRecall", _RETRIEVAL, module=_RANKING, grouped=True), "rows"),
    ("group_ndcg_at_10", Metric("GroupedItemGain", _RETRIEVAL, module=_RANKING, grouped=True), "rows"),
    ("coverage_at_10", Metric("CatalogueCoverage", _RETRIEVAL, module=_RETRIEVED, recommended=True), "rows"),
    (
        "popularity_at_10",
        Metric("RecommendedPopularity", _RETRIEVAL, "lower", module=_RETRIEVED, recommended=True),
        "rows",
    ),
    ("accuracy_at_3", Metric("TopClassAccuracy", _MULTICLASS, module=_ERRORS), "classes"),
    ("quantile_loss_at_0.9", Metric("QuantileLoss", _REGRESSION, better="lower", module=_QUANTILES), "quantile"),
    ("tweedie_deviance_at_1.5", Metric("MeanDeviance", _REGRESSION, better="lower", module=_ERRORS), "power"),
)
"""Metrics with a number in their name: an example of the name, the metric, and the option that gets the number."""

DEFAULT_METRICS: dict[Task, tuple[str, ...]] = {
    "binary": ("auc", "auc_precision_recall", "binary_accuracy", "binary_crossentropy", "calibration"),
    "multiclass": ("accuracy", "crossentropy"),
    "regression": ("mean_squared_error", "mean_absolute_error"),
    "retrieval": ("recall_at_10", "ndcg_at_10", "mrr", "coverage_at_10", "popularity_at_10"),
}

GROUP_METRICS: dict[Task, tuple[str, ...]] = {
    "binary": ("gauc", "ndcg_at_10"),
    "retrieval": ("group_recall_at_10", "group_ndcg_at_10"),
}
"""The metrics of groups that are computed by default if there is `evaluation.group`; other tasks do not have any."""

LOSS_METRICS: dict[Loss, tuple[str, ...]] = {
    "quantile": ("quantile_loss", "interval_coverage", "interval_width"),
    "poisson": ("poisson_deviance",),
    "tweedie": ("tweedie_deviance_at_1.5",),
}
"""Loss of a model → its metrics, in addition to those of the task; in the first one it is compared with a constant."""

Rate = Literal["false_positive_rate", "false_negative_rate", "positive_rate"]
RATES: dict[Rate, str] = {
    "false_positive_rate": "FallOut",
    "false_negative_rate": "MissRate",
    "positive_rate": "PredictedPositiveRate",
}
"""Rate of a group → its class in TFMA."""


class Threshold(Section):
    """The bounds of one metric: absolute, relative to the latest blessed model, or both."""

    min: float | None = Field(default=None, allow_inf_nan=False)
    """Smallest value that passes."""
    max: float | None = Field(default=None, allow_inf_nan=False)
    """Greatest value that passes."""
    worse_by: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """By how much the value may be worse than the latest blessed model's; without such a model it passes."""
    worse_by_fraction: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """As worse_by, as a fraction of that model's value: 0.02 is two percent."""

    @model_validator(mode="after")
    def _has_a_bound(self) -> Threshold:
        if not any(bound is not None for bound in (self.min, self.max, self.worse_by, self.worse_by_fraction)):
            raise ValueError("expected min, max, worse_by or worse_by_fraction, received none of them")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"expected min at most max, received min {self.min:g} and max {self.max:g}")
        return self


class FairnessConfig(Section):
    """How much a model's rates may differ between groups of people."""

    column: str
    """The column of the group, such as gender; it does not have to be a feature."""
    at: float = Field(default=0.5, gt=0, lt=1)
    """Smallest probability that counts as positive."""
    max_gap: dict[Rate, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """Rate → greatest difference between two groups: false_positive_rate, false_negative_rate, positive_rate. A rate
    that is not named is measured, without a check."""


def metric(name: str, task: Task | None = None) -> Metric:
    """Return a metric by its name: of METRICS, with a number as in `precision_at_0.7`, or the path of a class.

    The name may begin with that of one of several labels, as in `purchase/auc`.

    Args:
      name: the name.
      task: whose metric it is, if several tasks have one of this name.

    Raises:
      ValueError: there is no such metric.
    """
    found = list(_metrics(label_of(name)[1]))
    return next((each for each in found if task in each.tasks), found[0])


def _metrics(name: str) -> Iterator[Metric]:
    """Yield the metrics of this name, each of another task."""
    if name in METRICS.built_in:
        yield from (each[name] for each in (METRICS, RETRIEVAL_METRICS) if name in each)
        return
    if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", name):
        module, _, made = name.rpartition(".")
        yield Metric(made, _BINARY | _MULTICLASS | _REGRESSION, module=module)
        return
    base, _, number = name.rpartition("_at_")
    known_base = False
    for example, each, option in NUMBERED_METRICS:
        known, _, value = example.rpartition("_at_")
        if base == known and ("." in number) is ("." in value):
            known_base = True
            yield replace(each, options={option: _number(name, number, 1 if option == "power" else 0)})
    if known_base:
        return
    if name in METRICS.added:
        yield METRICS[name]
    else:
        known_names = (*METRICS, *(example for example, _, _ in NUMBERED_METRICS))
        raise ValueError(f"unknown metric {name!r}{did_you_mean(name, known_names)}")


def _number(name: str, text: str, least: int) -> int | float:
    """Parse the number in a metric's name: one between `least` and `least + 1`, or a count."""
    if re.fullmatch(rf"{least}\.\d+", text) and float(text) > least:
        return float(text)
    if re.fullmatch(r"[1-9]\d*", text):
        return int(text)
    raise ValueError(
        f"{name}: expected a number between {least} and {least + 1} or a whole one from 1 on, received {text}"
    )


def _metric(name: str) -> str:
    metric(name)
    return name


def label_of(name: str) -> tuple[str, str]:
    """Split the name of a metric into that of its label, empty if there is none, and its own."""
    label, _, own = name.rpartition("/")
    return label, own


def thresholds_of(label: str, thresholds: dict[str, Threshold]) -> dict[str, Threshold]:
    """Return the bounds of one of several labels, by the metrics' own names; `purchase/auc` goes before `auc`."""
    named = {label_of(name): each for name, each in thresholds.items()}
    return {name: each for of in ("", label) for (found, name), each in named.items() if found == of}


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
    """Split a name under `slice_thresholds` into column and value; the value is None for all values of the column."""
    column, equals, value = name.partition("=")
    return column.strip(), value.strip() if equals else None


class EvaluationConfig(Section):
    """Metrics on the eval split, and the gate's bounds."""

    metrics: tuple[MetricName, ...] = ()
    """Metrics to compute; without any, the default ones of the task, and with `group` two of groups. A number is part
    of the name, as in `precision_at_0.7`; a metric of your own is the import path of its class, as in
    `my_metrics.Lift`. With `data.labels` a metric is computed for each label, or for one, as `purchase/auc`; a
    label without any named has the default ones."""
    group: str | None = None
    """The column whose values are the groups of `gauc`, `ndcg_at_10` and the other metrics of the order of rows in a
    group, such as the user or the session; it does not have to be a feature. Rows without a value are in no group. With
    the task retrieval the groups are those of `group_recall_at_10` and `group_ndcg_at_10`, means over the users."""
    exclude_seen: bool | str | None = None
    """With the task retrieval: whether items that the user has an interaction with in the training split are left out
    of the ranking and of the recommendations, for the model and for popularity. Name the query's column with the user's
    ID, which has the operation vocab; true is enough if the query has one such column. By default they are left out if
    there is one such column whose values do not repeat items, in at least 99 % of the interactions of the training
    split; the Trainer's log says what was found. An item of the eval split that was left out is a miss."""
    slices: tuple[Slice, ...] = ()
    """Columns, or lists of columns: metrics are computed for each of their values, in addition to the whole split."""
    thresholds: Thresholds
    """Metric → bounds on the whole eval split. At least one, since a gate without bounds would bless any model. With
    `data.labels` a bound is that of each label, and that of `purchase/auc` is one label's own."""
    slice_thresholds: dict[SliceName, Thresholds] = Field(default_factory=dict)
    """Column → metric → bounds in the slice of each value; `COLUMN = VALUE` is one value only. These slices do not have
    to be in `slices`."""
    constant: Reaction = "refuse"
    """What becomes of a model that is no better than the best constant prediction on the eval split, beyond the
    interval: in its crossentropy (binary and multiclass), or its squared or absolute error (regression). refuse: it is
    not blessed, whatever the thresholds; warn: the verdict has a warning."""
    leakage: Reaction = "warn"
    """What becomes of a model of which a column alone predicts the label nearly perfectly. refuse: it is not blessed;
    warn: the verdict has a warning."""
    max_importance: dict[str, Annotated[float, Field(gt=0, lt=1)]] = Field(default_factory=dict)
    """Column → greatest share of the importance of all columns. A model that depends more on the column is not blessed:
    a column with nearly all of the importance may be known only after the outcome."""
    importance_rows: int | None = Field(default=None, ge=0)
    """Number of rows of the eval split by which the importance of columns is measured; 0: it is not measured. By
    default 10,000, fewer for a table with many columns, and none for one with more than 126."""
    worst_mistakes: int = Field(default=24, ge=0, le=100)
    """Number of images of the eval split that the report shows, of those that the model is wrong about: the ones with
    the greatest probability of the wrong class. 0: none, for images that a report must not contain."""
    min_examples: int = Field(default=50, ge=1)
    """A slice with fewer rows is measured, but not judged: its metrics have a large variance."""
    fairness: FairnessConfig | None = None
    """Rates per group of people, and their greatest differences; for a binary task."""
    label_key: str | None = None
    """With your own run_fn: the key of the label, if it is not `label`."""
    preprocessing: tuple[str, ...] = ()
    """With your own run_fn: signatures of the model that compute label and features from raw examples."""

    @model_validator(mode="after")
    def _measures_importance(self) -> EvaluationConfig:
        if self.max_importance and self.importance_rows == 0:
            raise ValueError("expected importance_rows above 0 with max_importance, received 0; remove one of both")
        return self

    @model_validator(mode="before")
    @classmethod
    def _not_forced(cls, values: Any) -> Any:
        if isinstance(values, dict) and "force_bless" in values:
            raise ValueError(
                "force_bless: expected no such key, since it would bless every model from now on; "
                "use --force-bless REASON on the command line, for one run"
            )
        return values

    def metrics_for(self, task: Task, of_loss: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the metrics of a run: those named or the default ones, and every one with a threshold.

        Args:
          task: whose metrics are the default ones.
          of_loss: the metrics of the model's loss, which come before these.
        """
        thresholds = (self.thresholds, *self.slice_thresholds.values())
        default = (*of_loss, *DEFAULT_METRICS[task], *(GROUP_METRICS.get(task, ()) if self.group else ()))
        return tuple(dict.fromkeys((*(self.metrics or default), *(name for each in thresholds for name in each))))

    def of_label(self, label: str, *, is_first: bool) -> EvaluationConfig:
        """Return the section for one of several labels, in which metrics have their own names.

        Args:
          label: its name.
          is_first: whether it is the first label, by which the importance of columns and the worst mistakes are found.
        """
        slices = {name: thresholds_of(label, each) for name, each in self.slice_thresholds.items()}
        metrics = (label_of(name) for name in self.metrics)
        of_others = {} if is_first else {"max_importance": {}, "importance_rows": 0, "worst_mistakes": 0}
        return self.model_copy(
            update={
                "metrics": tuple(name for found, name in metrics if found in ("", label)),
                "thresholds": thresholds_of(label, self.thresholds),
                "slice_thresholds": {name: each for name, each in slices.items() if each},
                **of_others,
            }
        )

    def modules(self) -> tuple[str, ...]:
        """Return the modules of metrics of the user's own and of installed packages."""
        named = (name for name in self.metrics_for("binary") if label_of(name)[1] not in METRICS.built_in)
        modules = {found.module for found in map(metric, named)}
        return tuple(sorted(modules - {_OURS, _ERRORS, _QUANTILES, _RANKING, _RETRIEVED, ""}))

    def columns(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield every column that the section names, with its key in the section."""
        for index, names in enumerate(self.slices):
            yield from ((("slices", index, name), name) for name in names)
        for name in self.slice_thresholds:
            yield ("slice_thresholds", name), slice_of(name)[0]
        if self.group:
            yield ("group",), self.group
        if isinstance(self.exclude_seen, str):
            yield ("exclude_seen",), self.exclude_seen
        if self.fairness:
            yield ("fairness", "column"), self.fairness.column
