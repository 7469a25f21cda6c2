"""The rows of the tables of metrics and bounds, for the terminal, the report, the model card and the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from components.evaluator.config import RATES, label_of
from components.evaluator.verdict import Check, SliceMetrics, format_slice
from pipeline.core.records import RunSummary

OVERALL, CONSTANT = "overall", "best constant"
"""The names of the whole eval split, and of the best constant prediction on it, in a table."""


@dataclass(frozen=True)
class CheckRow:
    """A bound of the config and the value that it was compared with.

    Attributes:
      metric: its name.
      slice: such as `company = Blue`, or `overall`.
      bound: such as `at least 0.6`.
      value: the candidate's; None where it cannot be computed.
      baseline: of the latest blessed model, if there is one.
      rows: number of rows of the value; None where it is not one number.
      outcome: pass, fail or not judged.
      why: the reason of the outcome, if any.
    """

    metric: str
    slice: str
    bound: str
    value: float | None
    baseline: float | None
    rows: int | None
    outcome: str
    why: str | None


def check_rows(checks: Iterable[Check]) -> list[CheckRow]:
    """Returns a row for each check, those that failed first."""
    return [
        CheckRow(
            check.metric,
            slice_name(check.slice),
            check.bound,
            check.value,
            check.baseline,
            check.rows,
            "not judged" if not check.judged else "pass" if check.passed else "fail",
            check.why,
        )
        for check in sorted(checks, key=lambda check: check.passed)
    ]


def metric_rows(summary: RunSummary, most: int | None = None) -> list[SliceMetrics]:
    """Returns the metrics of the whole eval split, then of each slice; empty if nothing was measured.

    Args:
      summary: of a run.
      most: maximum number of slices, those with the most rows, in their order; None: all.
    """
    if not summary.metrics and not summary.slices:
        return []
    overall = SliceMetrics({}, summary.rows_evaluated or 0, summary.metrics, summary.baseline, summary.intervals)
    largest = sorted(range(len(summary.slices)), key=lambda index: -summary.slices[index].rows)[:most]
    return [overall, *(summary.slices[index] for index in sorted(largest))]


def constant_values(summary: RunSummary) -> dict[str, float]:
    """Returns the metrics of the best constant prediction, of those that the model has."""
    return {name: each.value for name, each in summary.constant.items() if name in summary.metrics}


def metric_names(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Splits names of metrics, in their order, into measures of quality and the rates of groups (see `RATES`)."""
    names = list(names)
    rates = [name for name in names if label_of(name)[1] in RATES]
    return [name for name in names if name not in rates], rates


def by_label(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns label → the metrics that begin with it, as `click/auc`; the only label is the empty one."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(label_of(name)[0], []).append(name)
    return found


def slice_name(values: dict[str, str]) -> str:
    """Returns a slice's name, such as `company = Blue`; `overall` for the whole split."""
    return format_slice(values) or OVERALL


def change(before: Sequence[float | None], digits: int = 4) -> str:
    """Returns the signed difference of two values, such as `+0.0500`; empty if one is missing."""
    first, second = before
    return "" if first is None or second is None else f"{second - first:+.{digits}f}"
