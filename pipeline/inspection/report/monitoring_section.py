"""The section of a report on monitoring: distributions of requests and training rows, metrics by later labels."""

from __future__ import annotations

from typing import Any

from components.monitor.result import ColumnComparison, Judgement, Monitoring, Outcome, VersionDifference
from pipeline.inspection.evaluation_tables import check_rows, slice_name
from pipeline.inspection.report import svg

_COLUMNS = 24
"""Columns of a version that are drawn, the most different ones."""
_FINDINGS = 100
_SLICES = 50
_METRICS = 12


def of(result: Monitoring) -> dict[str, Any]:
    """Returns what the template `monitoring.html` prints."""
    findings = list(result.findings())
    return {
        "findings": findings[:_FINDINGS],
        "findings_left": max(0, len(findings) - _FINDINGS),
        "judgements": [_judgement(each) for each in result.judgements],
        "outcomes": [_outcome(each) for each in result.outcomes],
        "differences": [_difference(each) for each in result.differences],
    }


def _judgement(judged: Judgement) -> dict[str, Any]:
    found = {each.column for each in judged.findings or ()}
    return {
        "version": judged.version,
        "reference": judged.reference,
        "rows": judged.rows,
        "compared": judged.compared,
        "reference_rows": judged.reference_rows,
        "judged": judged.findings is not None,
        "columns": [_column(each, each.name in found, judged.reference) for each in judged.columns[:_COLUMNS]],
        "columns_left": max(0, len(judged.columns) - _COLUMNS),
    }


def _column(column: ColumnComparison, drifted: bool, reference: str) -> dict[str, Any]:
    tallest = max((share for each in column.bins for share in (each.reference, each.sample)), default=0.0)
    charts = {}
    for name, shares in (
        (reference, [each.reference for each in column.bins]),
        ("served", [each.sample for each in column.bins]),
    ):
        most = max(range(len(shares)), key=lambda at, of=shares: of[at], default=None)  # type: ignore[misc]
        text = "" if most is None else f"most in {column.bins[most].label}: {100 * shares[most]:.1f} %"
        charts[name] = svg.bars(shares, tallest, f"{column.name} in {name}", text)
    figures = {"distance": column.distance, "PSI": column.psi, "p-value": column.p_value, "new values": column.new}
    # Bins in which the shares differ most.
    apart = sorted(column.bins, key=lambda each: -abs(each.reference - each.sample))[:5]
    return {
        "name": column.name,
        "drifted": drifted,
        "charts": charts if column.bins else {},
        "bins": apart,
        "figures": [(name, f"{value:.4f}") for name, value in figures.items() if value is not None],
        "missing": column.missing,
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    names = list(outcome.slices[0].metrics) if outcome.slices else []
    return {
        "name": f"{outcome.version}, {outcome.label}," if outcome.label else str(outcome.version),
        "rows": outcome.rows,
        "keyed": outcome.keyed,
        "labelled": outcome.labelled,
        "judged": outcome.checks is not None,
        "checks": check_rows(outcome.checks or ()),
        "metrics": names[:_METRICS],
        "slices": outcome.slices[:_SLICES],
        "slices_left": max(0, len(outcome.slices) - _SLICES),
        "evaluated": {slice_name(each.slice): each.intervals for each in outcome.evaluated},
    }


def _difference(difference: VersionDifference) -> dict[str, Any]:
    return {
        "a": difference.a,
        "b": difference.b,
        "units": difference.units,
        "metrics": list(difference.metrics.items()),
    }
