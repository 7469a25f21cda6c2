"""The rows of the tables of metrics and bounds, for the terminal, the report, the model card and the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from components.edge.verdict import EdgeVerdict, VariantResult
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


def edge_header(verdict: EdgeVerdict) -> list[str]:
    """Returns the names of the columns of `edge_rows`."""
    latency = ("p50 / p99 ms", "2 threads", "speed")
    weights = ("zeros", "distinct")
    return ["variant", "kB", "gzip kB", verdict.metric, "mean |Δp|", "max |Δp|", *weights, *latency, "outcome"]


def edge_rows(verdict: EdgeVerdict) -> list[list[str]]:
    """Returns the cells of a row for each variant.

    Zeros and distinct weights are those of dense and convolutional layers, the latter of the layer with the most.
    Latencies are those of one thread and of two; the speed, with one and with two, is that of the float32 file = 1.
    """
    return [[*_edge_cells(each), "pass" if each.passed else "fail"] for each in verdict.variants]


def _edge_cells(variant: VariantResult) -> list[str]:
    if variant.bytes is None:
        return [variant.name, *[""] * 10]
    sizes = [f"{(size or 0) / 1000:,.1f}" for size in (variant.bytes, variant.gzip_bytes)]
    quality = [variant.metric, variant.mean_difference, variant.max_difference]
    figures = ["" if value is None else f"{value:.4f}" for value in quality]
    weights = ["", ""] if variant.sparsity is None else [f"{variant.sparsity:.0%}", f"{variant.distinct:,}"]
    latencies = [f"{each.p50_ms:.3g} / {each.p99_ms:.3g}" for each in variant.latencies]
    speeds = " / ".join(f"{each.speedup:.2f}" for each in variant.latencies)
    return [variant.name, *sizes, *figures, *weights, *(latencies or ["", ""]), speeds]


def edge_lines(verdict: EdgeVerdict) -> list[str]:
    """Returns the lines below the table.

    A line for each variant that is not pushed, with the reasons; for each student, beside the same one trained alone;
    and for each variant with layers that are not pruned, clustered or rounded.
    """
    failures = [f"{each.name} is not pushed: {'; '.join(each.why)}" for each in verdict.variants if each.why]
    return [*failures, *(line for each in verdict.variants for line in _edge_notes(verdict.metric, each))]


def _edge_notes(metric: str, variant: VariantResult) -> Iterator[str]:
    if student := variant.student:
        taught, alone = _mean_and_range(student.taught), _mean_and_range(student.alone)
        yield f"{variant.name}: {metric} of {len(student.taught)} seeds in float32: {taught}; trained alone: {alone}"
    if variant.left_out:
        yield f"{variant.name}: {len(variant.layers)} layers; as they are: {', '.join(variant.left_out)}"


def _mean_and_range(values: Sequence[float | None]) -> str:
    known = [each for each in values if each is not None]
    return f"{sum(known) / len(known):.4f} ({min(known):.4f} to {max(known):.4f})" if known else "not computable"


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
