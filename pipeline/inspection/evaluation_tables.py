"""Builds the rows of tables with metrics and bounds, for the terminal, the report, the model card and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from components.evaluator.config import DECISION_METRICS, RATES, label_of
from components.evaluator.verdict import Check, SliceMetrics, format_slice, reference_of
from pipeline.core.records import RunSummary

OVERALL = "overall"
"""Name in tables for the whole eval split."""


@dataclass(frozen=True)
class CheckRow:
    """A bound from the config, and the value that was compared with it.

    Attributes:
      metric: Name of the metric.
      slice: Name of the slice, such as `company = Blue`, or `overall`.
      bound: Description of the bound, such as `at least 0.6`.
      value: Value of the candidate model. None if it cannot be computed.
      baseline: Value of the latest blessed model. None if this model or its value is missing.
      rows: Number of rows that the value is computed from. None for a gap between slices.
      outcome: `pass`, `fail` or `not judged`.
      why: Reason why the check does not count, or an explanation of the outcome. None if neither applies.
    """

    metric: str
    slice: str
    bound: str
    value: float | None
    baseline: float | None
    rows: int | None
    outcome: str
    why: str | None


def make_check_rows(checks: Iterable[Check]) -> list[CheckRow]:
    """Return a row for each check, with failed checks first."""
    return [
        CheckRow(
            check.metric,
            format_slice_name(check.slice),
            check.bound,
            check.value,
            check.baseline,
            check.rows,
            "not judged" if not check.judged else "pass" if check.passed else "fail",
            check.why,
        )
        for check in sorted(checks, key=lambda check: check.passed)
    ]


def make_metric_rows(summary: RunSummary, most: int | None = None) -> list[SliceMetrics]:
    """Return the metrics of the whole eval split, followed by the metrics of slices.

    Args:
      summary: Summary of a run.
      most: Maximum number of slices. The slices with the most rows are returned, in their original order. If None, all
        slices are returned.

    Returns:
      The metrics, with an empty slice for the whole split. Empty if nothing was evaluated.
    """
    if not summary.metrics and not summary.slices:
        return []
    overall = SliceMetrics({}, summary.rows_evaluated or 0, summary.metrics, summary.baseline, summary.intervals)
    largest = sorted(range(len(summary.slices)), key=lambda index: -summary.slices[index].rows)[:most]
    return [overall, *(summary.slices[index] for index in sorted(largest))]


def select_reference_values(summary: RunSummary) -> dict[str, dict[str, float]]:
    """Return what the model is compared with on the whole eval split: the best constant prediction and a linear model.

    Returns:
      Name of the reference → metric → value, as far as the model was evaluated with the same metric.
    """
    constant = {name: metric.value for name, metric in summary.constant.items()}
    references = {reference_of(constant): constant, "linear model": summary.linear}
    known = {
        reference: {name: value for name, value in values.items() if name in summary.metrics}
        for reference, values in references.items()
    }
    return {reference: values for reference, values in known.items() if values}


@dataclass(frozen=True)
class DecisionTable:
    """The decision of a model on a label.

    Attributes:
      label: Name of the label; empty for the only label.
      text: The threshold and its goal in words.
      rows: Metric → its values on the validation rows, on the eval split, of the best constant and of the baseline on
        the eval split. None if a value is unknown.
    """

    label: str
    text: str
    rows: dict[str, tuple[float | None, ...]]


def list_decisions(summary: RunSummary) -> list[DecisionTable]:
    """Return the decisions of a model, for the report and the model card."""
    tables = []
    for label, decision in summary.decisions.items():
        names = [name for name in (*DECISION_METRICS, "cost") if name in decision.metrics]
        named = {name: f"{label}/{name}" if label else name for name in names or DECISION_METRICS}
        rows: dict[str, tuple[float | None, ...]] = {
            name: (
                decision.metrics.get(name),
                summary.metrics.get(full_name),
                summary.constant[full_name].value if full_name in summary.constant else None,
                summary.baseline.get(full_name),
            )
            for name, full_name in named.items()
        }
        tables.append(DecisionTable(label, str(decision), rows))
    return tables


def split_metric_names(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split metric names into quality metrics and rates of groups (see `RATES`), each in the original order."""
    names = list(names)
    rates = [name for name in names if label_of(name)[1] in RATES]
    return [name for name in names if name not in rates], rates


def group_by_label(names: Iterable[str]) -> dict[str, list[str]]:
    """Group metric names such as `click/auc` by their label. Metrics of a model with one label have the label ""."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(label_of(name)[0], []).append(name)
    return groups


def format_slice_name(values: dict[str, str]) -> str:
    """Return the name of a slice, such as `company = Blue`, or `overall` for the whole split."""
    return format_slice(values) or OVERALL


def format_change(values: Sequence[float | None]) -> str:
    """Return the signed difference of two values, such as `+0.0500`.

    Args:
      values: The two values; the first is subtracted from the second. If one of them is None, the result is empty.
    """
    before, after = values
    return "" if before is None or after is None else f"{after - before:+.4f}"
