"""The `evaluation` section: metrics, slices and bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveFloat, model_validator

from components.base.config_section import Loss, Section, Task, Texts
from components.base.names import did_you_mean
from components.base.registry import Registry
from components.results.decision_goal import Decide

Better = Literal["higher", "lower", "nearer 1"]
Reaction = Literal["refuse", "warn"]


@dataclass(frozen=True)
class Metric:
    """A metric of the config.

    Attributes:
      tfma_class: Class of the metric in TFMA, or in `module`.
      tasks: Tasks that the metric can be used for.
      better: Whether higher or lower values are better, or values nearer 1.
      both_classes: Whether the metric is undefined for rows with constant labels.
      module: Module of the class; empty for TFMA's classes.
      options: Arguments of the class in addition to the name.
      quantiles: Whether the class takes the quantiles that the model predicts as an argument.
      grouped: Whether the metric is a mean over the groups of `evaluation.group`.
      recommended: Whether the metric is about the items that a retrieval recommends.
      forecasts: Whether the metric reads columns that `data.windows` adds.
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
    forecasts: bool = False


_CLASS_SETS = "components.evaluator.multilabel_metrics"
_OURS = "components.evaluator.calibration"
_COST = "components.evaluator.decision_cost"
_ERRORS = "components.evaluator.error_metrics"
_QUANTILES = "components.evaluator.quantile_metrics"
_RANKING = "components.evaluator.ranking_metrics"
_RETRIEVED = "components.evaluator.retrieval_metrics"
_SURVIVAL_METRICS = "components.evaluator.survival_metrics"
_BINARY = frozenset[Task]({"binary"})
_RANKED = frozenset[Task]({"binary", "anomaly"})
_MULTICLASS = frozenset[Task]({"multiclass"})
_MULTILABEL = frozenset[Task]({"multilabel"})
_REGRESSION = frozenset[Task]({"regression"})
_RETRIEVAL = frozenset[Task]({"retrieval"})
_SURVIVAL = frozenset[Task]({"survival"})


def _make_grouped(measure: str, task: Task = "binary") -> Metric:
    options = {"measure": measure}
    is_binary = task == "binary"
    return Metric("GroupMetric", frozenset({task}), "higher", is_binary, _RANKING, options, grouped=True)


_BUILT_IN: dict[str, Metric] = {
    "auc": Metric("ScoreArea", _RANKED, both_classes=True, module=_OURS),
    "auc_precision_recall": Metric("ScorePrecisionRecallArea", _RANKED, both_classes=True, module=_OURS),
    "binary_accuracy": Metric("BinaryAccuracy", _BINARY),
    "binary_crossentropy": Metric("BinaryCrossEntropy", _BINARY, better="lower"),
    "calibration": Metric("HistogramCalibration", _BINARY, better="nearer 1", module=_OURS),
    "expected_calibration_error": Metric("ExpectedCalibrationError", _BINARY, better="lower", module=_OURS),
    "precision": Metric("Precision", _BINARY),
    "recall": Metric("Recall", _BINARY),
    "f1": Metric("F1Score", _BINARY),
    "cost": Metric("MeanCost", _BINARY, better="lower", module=_COST),
    "brier_score": Metric("MeanSquaredError", _BINARY, better="lower"),
    "gauc": _make_grouped("auc"),
    "mrr": _make_grouped("reciprocal_rank"),
    "accuracy": Metric("SparseCategoricalAccuracy", _MULTICLASS),
    "crossentropy": Metric(
        "MulticlassCrossentropy", _MULTICLASS, better="lower", module="components.evaluator.crossentropy"
    ),
    "log_loss": Metric("LogLoss", _MULTILABEL, better="lower", module=_CLASS_SETS),
    "micro_f1": Metric("MicroF1", _MULTILABEL, module=_CLASS_SETS),
    "macro_f1": Metric("MacroF1", _MULTILABEL, module=_CLASS_SETS),
    "macro_auc": Metric("MacroArea", _MULTILABEL, module=_CLASS_SETS),
    "macro_average_precision": Metric("MacroAveragePrecision", _MULTILABEL, module=_CLASS_SETS),
    "hamming_loss": Metric("HammingLoss", _MULTILABEL, better="lower", module=_CLASS_SETS),
    "subset_accuracy": Metric("SubsetAccuracy", _MULTILABEL, module=_CLASS_SETS),
    "mean_squared_error": Metric("MeanSquaredError", _REGRESSION, better="lower"),
    "mean_absolute_error": Metric("MeanAbsoluteError", _REGRESSION, better="lower"),
    "root_mean_squared_error": Metric("RootOfSquaredErrors", _REGRESSION, better="lower", module=_ERRORS),
    "mean_absolute_percentage_error": Metric("MeanAbsolutePercentageError", _REGRESSION, better="lower"),
    "r_squared": Metric("ExplainedShare", _REGRESSION, module=_ERRORS),
    "poisson_deviance": Metric("MeanDeviance", _REGRESSION, better="lower", module=_ERRORS, options={"power": 1}),
    "mase": Metric("MeanScaledError", _REGRESSION, better="lower", module=_ERRORS, forecasts=True),
    "smape": Metric("SymmetricPercentageError", _REGRESSION, better="lower", module=_ERRORS),
    "wape": Metric("WeightedPercentageError", _REGRESSION, better="lower", module=_ERRORS),
    "quantile_loss": Metric("MeanQuantileLoss", _REGRESSION, better="lower", module=_QUANTILES, quantiles=True),
    "interval_coverage": Metric("IntervalCoverage", _REGRESSION, module=_QUANTILES, quantiles=True),
    "interval_width": Metric("IntervalWidth", _REGRESSION, better="lower", module=_QUANTILES, quantiles=True),
    "negative_log_likelihood": Metric("NegativeLogLikelihood", _SURVIVAL, better="lower", module=_SURVIVAL_METRICS),
    "concordance": Metric("Concordance", _SURVIVAL, module=_SURVIVAL_METRICS),
    "integrated_brier_score": Metric("IntegratedBrierScore", _SURVIVAL, better="lower", module=_SURVIVAL_METRICS),
}
"""`calibration` is the mean prediction divided by the mean label; `expected_calibration_error` is the mean difference
of the two over ten bins of predictions; `cost` is the mean cost with the costs of `decide`. TFMA looks up class names
in its modules first, so the names must differ."""

METRICS: Registry[Metric] = Registry(
    "metrics",
    _BUILT_IN,
    "a components.evaluator.config.Metric",
    lambda entry: isinstance(entry, Metric),
)
"""Name → metric; installed packages add metrics to the group `tfx_pipeline.metrics`."""

RETRIEVAL_METRICS = {"mrr": Metric("ItemReciprocalRank", _RETRIEVAL, module=_RETRIEVED)}
"""Metrics of a retrieval whose names have another meaning in other tasks."""

NUMBERED_METRICS: tuple[tuple[str, Metric, str], ...] = (
    ("precision_at_0.7", Metric("Precision", _BINARY), "thresholds"),
    ("recall_at_0.7", Metric("Recall", _BINARY), "thresholds"),
    ("f1_at_0.7", Metric("F1Score", _BINARY), "thresholds"),
    ("binary_accuracy_at_0.7", Metric("BinaryAccuracy", _BINARY), "threshold"),
    ("precision_at_100", Metric("PrecisionOfTop", _RANKED, module=_OURS), "rows"),
    ("recall_at_100", Metric("RecallOfTop", _RANKED, module=_OURS), "rows"),
    ("ndcg_at_10", _make_grouped("gain"), "rows"),
    ("mrr_at_10", _make_grouped("reciprocal_rank"), "rows"),
    ("group_recall_at_10", _make_grouped("recall"), "rows"),
    ("group_precision_at_10", _make_grouped("precision"), "rows"),
    ("recall_at_10", Metric("ItemRecall", _RETRIEVAL, module=_RETRIEVED), "rows"),
    ("ndcg_at_10", Metric("ItemDiscountedGain", _RETRIEVAL, module=_RETRIEVED), "rows"),
    ("mrr_at_10", Metric("ItemReciprocalRank", _RETRIEVAL, module=_RETRIEVED), "rows"),
    ("group_recall_at_10", _make_grouped("item_recall", "retrieval"), "rows"),
    ("group_ndcg_at_10", _make_grouped("item_gain", "retrieval"), "rows"),
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
"""Metrics with a number in their name: an example of the name, the metric, and the option that takes the number."""

DEFAULT_METRICS: dict[Task, tuple[str, ...]] = {
    "binary": ("auc", "auc_precision_recall", "binary_accuracy", "binary_crossentropy", "calibration"),
    "multiclass": ("accuracy", "crossentropy"),
    "multilabel": ("log_loss", "micro_f1", "macro_f1", "macro_auc", "macro_average_precision", "hamming_loss"),
    "regression": ("mean_squared_error", "mean_absolute_error"),
    "survival": ("negative_log_likelihood", "concordance", "integrated_brier_score"),
    "retrieval": ("recall_at_10", "ndcg_at_10", "mrr", "coverage_at_10", "popularity_at_10"),
    "anomaly": ("auc", "auc_precision_recall"),
}

FORECAST_METRICS = ("mase", "wape")
"""Metrics that are computed by default with `data.windows`, in addition to the metrics of the task."""

GROUP_METRICS: dict[Task, tuple[str, ...]] = {
    "binary": ("gauc", "ndcg_at_10"),
    "retrieval": ("group_recall_at_10", "group_ndcg_at_10"),
}
"""Grouped metrics that are computed by default with `evaluation.group`; other tasks do not have grouped metrics."""

DECISION_METRICS = ("precision", "recall", "f1")
"""Metrics that are always computed with `evaluation.decide`."""

LOSS_METRICS: dict[Loss, tuple[str, ...]] = {
    "quantile": ("quantile_loss", "interval_coverage", "interval_width"),
    "poisson": ("poisson_deviance",),
    "tweedie": ("tweedie_deviance_at_1.5",),
}
"""Loss of a model → metrics in addition to the metrics of the task; the first is compared with a constant."""

Rate = Literal["false_positive_rate", "false_negative_rate", "positive_rate"]
RATES: dict[Rate, str] = {
    "false_positive_rate": "FallOut",
    "false_negative_rate": "MissRate",
    "positive_rate": "PredictedPositiveRate",
}
"""Rate of a group → class in TFMA."""


class Threshold(Section):
    """The bounds of one metric: absolute, relative to the latest blessed model, or both."""

    min: float | None = Field(default=None, allow_inf_nan=False)
    """Smallest value that passes."""
    max: float | None = Field(default=None, allow_inf_nan=False)
    """Greatest value that passes."""
    worse_by: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Maximum amount by which the value may be worse than the latest blessed model's value. Without such a model, the
    check passes."""
    worse_by_fraction: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Like `worse_by`, but as a fraction of the blessed model's value: 0.02 is two percent."""

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
    """Column of the group, such as gender. It does not have to be a feature."""
    at: float | None = Field(default=None, gt=0, lt=1)
    """Smallest probability that counts as positive. By default, the model's own threshold with `decide`, otherwise
    0.5."""
    max_gap: dict[Rate, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """Rate → maximum difference between two groups: false_positive_rate, false_negative_rate, positive_rate. Rates that
    are not listed are measured but not checked."""


def metric(name: str, task: Task | None = None) -> Metric:
    """Look up a metric by its name: a key of METRICS, a name with a number as in `precision_at_0.7`, or a class path.

    The name may begin with the name of a label, as in `purchase/auc`.

    Args:
      name: Name of the metric.
      task: Task of the model, which disambiguates names that several tasks share.

    Raises:
      ValueError: The metric is unknown.
    """
    candidates = list(_find_metrics(label_of(name)[1]))
    return next((candidate for candidate in candidates if task in candidate.tasks), candidates[0])


def _find_metrics(name: str) -> Iterator[Metric]:
    """Yield the metrics of this name, one per task."""
    if name in METRICS.built_in:
        yield from (metrics[name] for metrics in (METRICS, RETRIEVAL_METRICS) if name in metrics)
        return
    if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", name):
        module, _, class_name = name.rpartition(".")
        yield Metric(class_name, _BINARY | _MULTICLASS | _REGRESSION, module=module)
        return
    base, _, number = name.rpartition("_at_")
    known_base = False
    for example, numbered, option in NUMBERED_METRICS:
        known, _, example_number = example.rpartition("_at_")
        if base == known and ("." in number) is ("." in example_number):
            known_base = True
            value = _number(name, number, 1 if option == "power" else 0)
            yield replace(numbered, options={**numbered.options, option: value})
    if known_base:
        return
    if name in METRICS.added:
        yield METRICS[name]
    else:
        raise ValueError(f"unknown metric {name!r}{did_you_mean(name, _list_metrics())}")


def _number(name: str, text: str, least: int) -> int | float:
    """Parse the number in a metric's name: a fraction between `least` and `least + 1`, or a count."""
    if re.fullmatch(rf"{least}\.\d+", text) and float(text) > least:
        return float(text)
    if re.fullmatch(r"[1-9]\d*", text):
        return int(text)
    raise ValueError(
        f"{name}: expected a number between {least} and {least + 1} or a whole number from 1, received {text}"
    )


def _list_metrics() -> tuple[str, ...]:
    """Return the names of all metrics, of which installed packages add some, with examples of numbered metrics."""
    return (*METRICS, *(example for example, _, _ in NUMBERED_METRICS))


def _metric(name: str) -> str:
    metric(name)
    return name


def label_of(name: str) -> tuple[str, str]:
    """Split `purchase/auc` into label and metric; the label of a plain `auc` is empty."""
    label, _, metric_name = name.rpartition("/")
    return label, metric_name


def thresholds_of(label: str, thresholds: dict[str, Threshold]) -> dict[str, Threshold]:
    """Return the bounds of a label by plain metric name; the bound of `purchase/auc` overrides the bound of `auc`."""
    by_label = [(label_of(name), threshold) for name, threshold in thresholds.items()]
    return {
        name: threshold
        for prefix in ("", label)
        for (threshold_label, name), threshold in by_label
        if threshold_label == prefix
    }


def _some_slice(name: str) -> str:
    column, equals, value = name.partition("=")
    if not column.strip() or (equals and not value.strip()):
        raise ValueError(f"expected a column, or one value of it as in payment_type = Cash; received {name!r}")
    return name


MetricName = Annotated[
    # The schema does not enumerate the names, because a name can also contain a label, a number or a class path.
    str, AfterValidator(_metric), Field(json_schema_extra=lambda schema: schema.update(examples=[*_list_metrics()]))
]
SliceName = Annotated[str, AfterValidator(_some_slice)]
Thresholds = Annotated[dict[MetricName, Threshold], Field(min_length=1)]


def slice_of(name: str) -> tuple[str, str | None]:
    """Split a key of `slice_thresholds` into column and value; None stands for every value of the column."""
    column, equals, value = name.partition("=")
    return column.strip(), value.strip() if equals else None


class EvaluationConfig(Section):
    """Metrics on the eval split, and the gate's bounds."""

    metrics: tuple[MetricName, ...] = ()
    """Metrics to compute. By default, the default metrics of the task, and with `group` two grouped metrics. A number
    is part of the name, as in `precision_at_0.7`. To use a metric that you wrote, give the import path of its class, as
    in `my_metrics.Lift`. With `data.labels`, `auc` is computed for every label and `purchase/auc` for that label only;
    a label for which the list does not name a metric has the default metrics."""
    group: str | None = None
    """Column, such as the user or the session, whose values are the groups of grouped metrics, which measure the order
    of rows in a group (`gauc`, `ndcg_at_10`). It does not have to be a feature. Rows without a value are ignored. For
    the task retrieval the grouped metrics are `group_recall_at_10` and `group_ndcg_at_10`, means over the users."""
    exclude_seen: bool | str | None = None
    """With the task retrieval: whether to leave out items that the user interacted with in the training split, both
    from the ranking and from the recommendations, for the model and for popularity. Name the query's column with the
    user's ID, which has the operation vocab; true is enough if the query has a single such column. By default, items
    are left out if there is a single such column and its users do not repeat items in at least 99 % of the interactions
    of the training split; the Trainer's log reports the decision. An item of the eval split that was left out is a
    miss."""
    decide: Decide | None = None
    """What a binary model answers in addition to its probability: the output `class`, which is 1 if the probability is
    at least a threshold. The Trainer chooses the threshold on the rows that it holds out, after the calibration: f1;
    {precision: 0.9}; {recall: 0.8}; {cost: {fp: 1, fn: 5}}; or {threshold: 0.3}, which does not need rows. Metrics of
    decisions, such as `precision`, then use the model's own threshold instead of 0.5. A change trains the model
    again."""
    slices: tuple[Texts, ...] = ()
    """Columns, or lists of columns, whose values are slices: metrics are computed for the whole split and every
    slice."""
    thresholds: Thresholds
    """Metric → bounds on the whole eval split. At least one metric is required, because a gate without bounds would
    bless any model. With `data.labels`, `auc` applies to every label and `purchase/auc` to that label only."""
    slice_thresholds: dict[SliceName, Thresholds] = Field(default_factory=dict)
    """Column → metric → bounds in the slices of all its values; `COLUMN = VALUE` is a single slice. These slices do not
    have to be in `slices`."""
    constant: Reaction = "refuse"
    """Reaction to a model that is not better than the best constant prediction on the eval split, beyond the interval,
    in its crossentropy (binary and multiclass) or in its squared or absolute error (regression). refuse: the model is
    not blessed, whatever the thresholds; warn: the verdict contains a warning."""
    leakage: Reaction = "warn"
    """Reaction to a model with a column that alone predicts the label nearly perfectly. refuse: the model is not
    blessed; warn: the verdict contains a warning."""
    max_importance: dict[str, Annotated[float, Field(gt=0, lt=1)]] = Field(default_factory=dict)
    """Column → maximum share of the importance of all columns. A model that depends more on the column is not blessed:
    a column with nearly all of the importance may be known only after the outcome."""
    importance_rows: int | None = Field(default=None, ge=0)
    """Number of rows of the eval split on which the importance of columns is measured; 0 disables it. By default
    10,000, fewer for a table with many columns, and 0 for a table with more than 126 columns."""
    importance_seconds: PositiveFloat = 60.0
    """Maximum CPU time of this measurement, and of the partial dependence. Both use fewer rows where the model is slow;
    if it would be fewer than 500, the importance is measured only for `max_importance`."""
    dependence_columns: int = Field(default=6, ge=0, le=50)
    """Number of columns, the most important ones, for which the partial dependence of the prediction is measured, and
    whose interactions are measured. 0 disables it."""
    linear_model_rows: int = Field(default=10_000, ge=0)
    """Number of rows of the training split on which a linear model of the raw columns is fitted, which is shown beside
    the model; fewer for a table with more than 400 columns. 0 disables it."""
    worst_mistakes: int = Field(default=24, ge=0, le=100)
    """Number of wrongly classified images of the eval split that the report shows, those with the highest probability
    of the wrong class. 0 if a report must not contain images."""
    min_examples: int = Field(default=50, ge=1)
    """A slice with fewer rows is measured but not judged, because its metrics have a large variance."""
    fairness: FairnessConfig | None = None
    """Rates per group of people, and their maximum differences; for a binary task."""
    label_key: str | None = None
    """With your own run_fn: key of the label. By default, `label`."""
    preprocessing: tuple[str, ...] = ()
    """With your own run_fn: signatures of the model that compute label and features from raw examples."""

    @model_validator(mode="after")
    def _measures_importance(self) -> EvaluationConfig:
        if self.max_importance and self.importance_rows == 0:
            raise ValueError("expected importance_rows above 0 with max_importance, received 0; remove one of them")
        return self

    @model_validator(mode="before")
    @classmethod
    def _not_forced(cls, values: Any) -> Any:
        if isinstance(values, dict) and "force_bless" in values:
            raise ValueError(
                "force_bless is not a config key, because it would bless every model from now on; "
                "use --force-bless REASON on the command line, for a single run"
            )
        return values

    def metrics_for(self, task: Task, of_loss: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the metrics of a run: the configured or default metrics, and all metrics with a threshold.

        Args:
          task: Task of the model, which determines the default metrics.
          of_loss: Metrics of the model's loss, which precede the default metrics.
        """
        thresholds = (self.thresholds, *self.slice_thresholds.values())
        default = (*of_loss, *DEFAULT_METRICS[task], *(GROUP_METRICS.get(task, ()) if self.group else ()))
        bounded = (name for section in thresholds for name in section)
        return tuple(dict.fromkeys((*(self.metrics or default), *self.metrics_of_decision, *bounded)))

    @property
    def metrics_of_decision(self) -> tuple[str, ...]:
        """The metrics that show what `decide` has chosen."""
        if self.decide is None:
            return ()
        return (*DECISION_METRICS, *(("cost",) if self.decide.cost else ()))

    def select_label(self, label: str, *, is_first: bool) -> EvaluationConfig:
        """Return the section for a label, with names of metrics that do not contain the label.

        Args:
          label: Name of the label.
          is_first: Whether it is the first label, for which the importance of columns and the worst mistakes are found.
        """
        slices = {name: thresholds_of(label, thresholds) for name, thresholds in self.slice_thresholds.items()}
        metrics = (label_of(name) for name in self.metrics)
        disabled = {} if is_first else {"max_importance": {}, "importance_rows": 0, "worst_mistakes": 0}
        return self.model_copy(
            update={
                "metrics": tuple(name for metric_label, name in metrics if metric_label in ("", label)),
                "thresholds": thresholds_of(label, self.thresholds),
                "slice_thresholds": {name: thresholds for name, thresholds in slices.items() if thresholds},
                **disabled,
            }
        )

    def modules(self) -> tuple[str, ...]:
        """Return the modules of metrics that the user or an installed package defines."""
        names = (name for name in self.metrics_for("binary") if label_of(name)[1] not in METRICS.built_in)
        modules = {metric(name).module for name in names}
        ours = {_CLASS_SETS, _OURS, _COST, _ERRORS, _QUANTILES, _RANKING, _RETRIEVED, _SURVIVAL_METRICS}
        return tuple(sorted(modules - ours - {""}))

    def columns(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield all columns that the section names, with their keys in the section."""
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
