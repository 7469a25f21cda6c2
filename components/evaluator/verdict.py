"""The verdict on a model, as dataclasses and as the file `verdict.json` of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from components.results.decision import Decision
from components.results.json_result import JsonResult

FILE = "verdict.json"
_CLASSES_NAMED = 5

CheckKind = Literal[
    "min", "max", "worse_by", "worse_by_fraction", "gap", "constant", "leakage", "importance", "decision"
]
"""Kind of a bound: the keys of a threshold, the gap between groups, and the bounds that do not name a metric."""


@dataclass(frozen=True)
class ConstantMetric:
    """A metric of the best constant prediction on the same rows.

    Attributes:
      value: Value of the constant.
      gain: Gain of the model over the constant; None if it was not computed.
      interval: Lower and upper bound of the gain's 95 % confidence interval; None if it cannot be computed.
    """

    value: float
    gain: float | None = None
    interval: tuple[float, float] | None = None


def reference_of(constant: Mapping[str, object]) -> str:
    """Return what metrics of a constant are computed for: the best constant prediction, or the naive forecast."""
    return "seasonal naive forecast" if "mase" in constant else "best constant"


@dataclass(frozen=True)
class SliceMetrics:
    """The metrics of a slice.

    Attributes:
      slice: Column → value, such as `{"trip_start_hour": "5"}`; `{}` is the whole split.
      rows: Number of rows.
      metrics: Metric → value of the candidate, for the metrics that can be computed.
      baseline: Metric → value of the latest blessed model on the same rows; empty without a baseline.
      intervals: Metric → lower and upper bound of its 95 % confidence interval, if it can be computed.
      constant: Metric → value of the best constant prediction; in a verdict only for the whole split.
      linear: Metric → value of a linear model; only for the whole split.
    """

    slice: dict[str, str]
    rows: int
    metrics: dict[str, float]
    baseline: dict[str, float]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    constant: dict[str, ConstantMetric] = field(default_factory=dict)
    linear: dict[str, float] = field(default_factory=dict)

    def with_label(self, label: str) -> SliceMetrics:
        """Prefix the names of the metrics with the name of a label, as in `purchase/auc`."""
        prefixed: dict[str, Any] = {
            field_name: {f"{label}/{name}": value for name, value in getattr(self, field_name).items()}
            for field_name in _BY_NAME
        }
        return replace(self, **prefixed)


_BY_NAME = ("metrics", "baseline", "intervals", "constant", "linear")
"""The fields of SliceMetrics that map metrics to values."""


@dataclass(frozen=True)
class Measured:
    """The completed measurement of a model, which the gate judges.

    Attributes:
      whole: Metrics of the whole split; values may be NaN.
      slices: Metrics of the slices.
      compared: Whether a baseline was evaluated.
    """

    whole: SliceMetrics
    slices: tuple[SliceMetrics, ...]
    compared: bool


@dataclass(frozen=True)
class Check:
    """The comparison of a value with a bound of the config.

    Attributes:
      metric: Name of the metric.
      slice: Column → value; empty for the whole split.
      bound: The bound in words, such as `at least 0.6`; only for display.
      value: Value of the candidate; None if it cannot be computed.
      baseline: Value of the latest blessed model; None without a baseline or its value.
      rows: Number of rows that the value was computed from; None for a gap between slices.
      passed: Result of the comparison; true if the check does not count.
      why: Explanation of the result, or reason why the check does not count; only for display.
      judged: Whether the check counts.
      kind: Kind of the bound.
    """

    metric: str
    slice: dict[str, str]
    bound: str
    value: float | None
    baseline: float | None
    rows: int | None
    passed: bool
    why: str | None
    judged: bool = True
    kind: CheckKind = "min"

    @property
    def is_relative(self) -> bool:
        """Whether the bound is relative to the baseline."""
        return self.kind in ("worse_by", "worse_by_fraction")

    def with_label(self, label: str) -> Check:
        """Prefix the name of the metric with the name of a label, as in `purchase/auc`."""
        return replace(self, metric=f"{label}/{self.metric}")

    def skip(self, why: str) -> Check:
        """Return a check that does not count, for this reason."""
        return replace(self, passed=True, judged=False, why=f"not judged: {why}")

    def __str__(self) -> str:
        where = f" where {format_slice(self.slice)}" if self.slice else ""
        received = "none" if self.value is None else f"{self.value:.6g}"
        compared = "" if self.baseline is None else f", the baseline has {self.baseline:.6g}"
        why = f" ({self.why})" if self.why else ""
        return f"{self.metric}{where}: expected {self.bound}, received {received}{compared}{why}"


@dataclass(frozen=True)
class MissedClasses:
    """The classes of which a model recognizes no row.

    Attributes:
      rows: Name of a class → number of its rows.
      at: Least probability of label 1 that counts as recognized; None if it is the most probable class.
    """

    rows: dict[str, float]
    at: float | None

    def __str__(self) -> str:
        named = [f"{name} ({rows:,.10g} rows)" for name, rows in list(self.rows.items())[:_CLASSES_NAMED]]
        left = f" and {len(self.rows) - _CLASSES_NAMED:,} more classes" if len(self.rows) > _CLASSES_NAMED else ""
        at = "" if self.at is None else f" at probability {self.at:g}"
        return f"the model never recognizes {', '.join(named)}{left}: recall 0 %{at}"


@dataclass(frozen=True)
class Verdict(JsonResult):
    """The result of the gate.

    Attributes:
      blessed: Whether the model may be pushed.
      forced: The user's reason to bless the model although checks failed; otherwise None.
      rows: Number of rows of the evaluated split.
      checks: All checks.
      slices: Metrics of the whole split, followed by the metrics of the slices.
      warnings: Problems that do not fail a check because the config only warns of them: a column that alone predicts
        the label, or a model that is not better than a constant.
      decisions: Name of a label, empty for the only label → the model's decision on it. Empty for a model that returns
        probabilities only.
    """

    blessed: bool
    forced: str | None
    rows: int
    checks: tuple[Check, ...]
    slices: tuple[SliceMetrics, ...]
    warnings: tuple[str, ...] = ()
    decisions: dict[str, Decision] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)


def join_verdicts(verdicts: Mapping[str, Verdict]) -> Verdict:
    """Join the verdicts on several labels: a model is blessed if it is blessed for all labels.

    Args:
      verdicts: Label → its verdict. In the joined verdict, names of metrics begin with the label, as in `purchase/auc`.
    """
    first = next(iter(verdicts.values()))
    return Verdict(
        blessed=all(verdict.blessed for verdict in verdicts.values()),
        forced=next((verdict.forced for verdict in verdicts.values() if verdict.forced is not None), None),
        rows=first.rows,
        checks=tuple(check.with_label(label) for label, verdict in verdicts.items() for check in verdict.checks),
        slices=tuple(_join_slice(metrics.slice, verdicts) for metrics in first.slices),
        warnings=tuple(f"{label}: {warning}" for label, verdict in verdicts.items() for warning in verdict.warnings),
        decisions={name: chosen for verdict in verdicts.values() for name, chosen in verdict.decisions.items()},
    )


def _join_slice(where: dict[str, str], verdicts: Mapping[str, Verdict]) -> SliceMetrics:
    by_label = [
        metrics.with_label(label)
        for label, verdict in verdicts.items()
        for metrics in verdict.slices
        if metrics.slice == where
    ]
    joined: dict[str, Any] = {
        field_name: {name: value for metrics in by_label for name, value in getattr(metrics, field_name).items()}
        for field_name in _BY_NAME
    }
    return replace(by_label[0], **joined)


def format_slice(values: dict[str, str]) -> str:
    """Return a slice in words, such as `payment_type = Cash`."""
    return " and ".join(f"{column} = {value}" for column, value in values.items())
