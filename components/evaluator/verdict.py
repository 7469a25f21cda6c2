"""The verdict on a model, as dataclasses and as the file `verdict.json` of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

FILE = "verdict.json"
NOT_JUDGED = "not judged: "
"""How `why` begins if a check does not count."""


@dataclass(frozen=True)
class ConstantMetric:
    """A metric of the best constant prediction on the same rows.

    Attributes:
      value: the constant's value.
      gain: by how much the model is better, where that is computed.
      interval: lower and upper bound of the gain's 95 % confidence interval, if it has one.
    """

    value: float
    gain: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class SliceMetrics:
    """The metrics of a slice.

    Attributes:
      slice: column → value, such as `{"trip_start_hour": "5"}`; `{}` is the whole split.
      rows: number of rows.
      metrics: metric → value of the candidate; without metrics that cannot be computed.
      baseline: metric → value of the latest blessed model on the same rows; empty without one.
      intervals: metric → lower and upper bound of its 95 % confidence interval, if it has one.
      constant: metric → that of the best constant prediction; in a verdict only of the whole split.
    """

    slice: dict[str, str]
    rows: int
    metrics: dict[str, float]
    baseline: dict[str, float]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    constant: dict[str, ConstantMetric] = field(default_factory=dict)

    def of_label(self, label: str) -> SliceMetrics:
        """Return the metrics as those of one of several labels: their names begin with it, as `purchase/auc`."""
        named: dict[str, Any] = {
            of: {f"{label}/{name}": value for name, value in getattr(self, of).items()} for of in _BY_NAME
        }
        return replace(self, **named)


_BY_NAME = ("metrics", "baseline", "intervals", "constant")
"""The fields of SliceMetrics that have a value for each metric."""


@dataclass(frozen=True)
class Measured:
    """The completed measurement of a model, which the gate judges.

    Attributes:
      whole: the metrics of the whole split; values may be NaN.
      slices: those of the slices.
      compared: whether there was a baseline.
    """

    whole: SliceMetrics
    slices: tuple[SliceMetrics, ...]
    compared: bool


@dataclass(frozen=True)
class Check:
    """The comparison of a value with a bound of the config.

    Attributes:
      metric: its name.
      slice: column → value; empty for the whole split.
      bound: the bound in words, such as `at least 0.6`.
      value: the candidate's value; None if it cannot be computed.
      baseline: the value of the latest blessed model, if there is one.
      rows: number of rows that the value was computed from; None for a gap between slices.
      passed: the result; true if the check does not count.
      why: the reason why it does not count, or an explanation of the result.
    """

    metric: str
    slice: dict[str, str]
    bound: str
    value: float | None
    baseline: float | None
    rows: int | None
    passed: bool
    why: str | None

    def of_label(self, label: str) -> Check:
        """Return the check as that of one of several labels, such as of `purchase/auc`."""
        return replace(self, metric=f"{label}/{self.metric}")

    @property
    def judged(self) -> bool:
        """Whether the check counts."""
        return self.why is None or not self.why.startswith(NOT_JUDGED)

    def __str__(self) -> str:
        where = f" where {format_slice(self.slice)}" if self.slice else ""
        received = "none" if self.value is None else f"{self.value:.6g}"
        compared = "" if self.baseline is None else f", the baseline has {self.baseline:.6g}"
        why = f" ({self.why})" if self.why else ""
        return f"{self.metric}{where}: expected {self.bound}, received {received}{compared}{why}"


@dataclass(frozen=True)
class Verdict:
    """The result of the gate.

    Attributes:
      blessed: whether the model may be pushed.
      forced: the user's reason to bless it although checks failed; else None.
      rows: number of rows of the evaluated split.
      checks: all checks.
      slices: the metrics of all slices, the whole split first.
      warnings: what the user should know although it fails no check: a column that alone predicts the label, or a model
        that is no better than a constant, if the config only warns of it.
    """

    blessed: bool
    forced: str | None
    rows: int
    checks: tuple[Check, ...]
    slices: tuple[SliceMetrics, ...]
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    def to_json(self) -> str:
        """Return the content of `verdict.json`."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """Parse the result of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        checks = tuple(Check(**each) for each in fields["checks"])
        slices = tuple(_slice_metrics(each) for each in fields["slices"])
        return cls(fields["blessed"], fields["forced"], fields["rows"], checks, slices, tuple(fields["warnings"]))


def joined(of_labels: Mapping[str, Verdict]) -> Verdict:
    """Join the verdicts about several labels: a model is blessed if it is for each of them.

    Args:
      of_labels: label → its verdict; the names of the joined verdict's metrics begin with it, as `purchase/auc`.
    """
    first = next(iter(of_labels.values()))
    return Verdict(
        blessed=all(each.blessed for each in of_labels.values()),
        forced=next((each.forced for each in of_labels.values() if each.forced is not None), None),
        rows=first.rows,
        checks=tuple(check.of_label(label) for label, each in of_labels.items() for check in each.checks),
        slices=tuple(_joined(each.slice, of_labels) for each in first.slices),
        warnings=tuple(f"{label}: {warning}" for label, each in of_labels.items() for warning in each.warnings),
    )


def _joined(where: dict[str, str], of_labels: Mapping[str, Verdict]) -> SliceMetrics:
    found = [each.of_label(label) for label, of in of_labels.items() for each in of.slices if each.slice == where]
    named: dict[str, Any] = {
        of: {name: value for each in found for name, value in getattr(each, of).items()} for of in _BY_NAME
    }
    return replace(found[0], **named)


def _slice_metrics(fields: dict[str, Any]) -> SliceMetrics:
    intervals = {name: _interval(ends) for name, ends in fields["intervals"].items()}
    constant = {
        name: ConstantMetric(each["value"], each["gain"], each["interval"] and _interval(each["interval"]))
        for name, each in fields["constant"].items()
    }
    return SliceMetrics(**{**fields, "intervals": intervals, "constant": constant})


def _interval(ends: Sequence[float]) -> tuple[float, float]:
    low, high = ends
    return low, high


def format_slice(values: dict[str, str]) -> str:
    """Return a slice in words, such as `payment_type = Cash`."""
    return " and ".join(f"{column} = {value}" for column, value in values.items())
