"""Prepares the report's section on monitoring.

It shows the distributions of requests and training rows, and metrics computed from labels that arrived later.
"""

from __future__ import annotations

from typing import Any

from components.monitor.result import ColumnComparison, Judgement, Monitoring, Outcome, VersionDifference
from pipeline.inspection.evaluation_tables import format_slice_name, make_check_rows
from pipeline.inspection.report import svg

_COLUMNS = 24
"""Maximum number of columns that are drawn per version. The columns that differ most are drawn."""
_BINS = 5
"""Number of bins in the table of a column, which shows the bins whose shares differ most."""
_FINDINGS = 100
_SLICES = 50
_METRICS = 12


def make_context(result: Monitoring) -> dict[str, Any]:
    """Return the values that the template `monitoring.html` prints."""
    findings = list(result.findings())
    return {
        "findings": findings[:_FINDINGS],
        "findings_left": max(0, len(findings) - _FINDINGS),
        "judgements": [_prepare_judgement(judgement) for judgement in result.judgements],
        "outcomes": [_prepare_outcome(outcome) for outcome in result.outcomes],
        "differences": [_prepare_difference(difference) for difference in result.differences],
    }


def _prepare_judgement(judgement: Judgement) -> dict[str, Any]:
    drifted = {finding.column for finding in judgement.findings or ()}
    return {
        "version": judgement.version,
        "reference": judgement.reference,
        "rows": judgement.rows,
        "compared": judgement.compared,
        "reference_rows": judgement.reference_rows,
        "judged": judgement.findings is not None,
        "columns": [
            _prepare_column(column, column.name in drifted, judgement.reference)
            for column in judgement.columns[:_COLUMNS]
        ],
        "columns_left": max(0, len(judgement.columns) - _COLUMNS),
    }


def _prepare_column(column: ColumnComparison, drifted: bool, reference: str) -> dict[str, Any]:
    tallest = max(
        (share for column_bin in column.bins for share in (column_bin.reference, column_bin.sample)), default=0.0
    )
    charts = {}
    for name, shares in (
        (reference, [column_bin.reference for column_bin in column.bins]),
        ("served", [column_bin.sample for column_bin in column.bins]),
    ):
        description = ""
        if shares:
            share = max(shares)
            description = f"most in {column.bins[shares.index(share)].label}: {100 * share:.1f} %"
        charts[name] = svg.draw_bars(shares, tallest, f"{column.name} in {name}", description)
    figures = {"distance": column.distance, "PSI": column.psi, "p-value": column.p_value, "new values": column.new}
    most_different = sorted(column.bins, key=lambda column_bin: -abs(column_bin.reference - column_bin.sample))
    return {
        "name": column.name,
        "drifted": drifted,
        "charts": charts if column.bins else {},
        "bins": most_different[:_BINS],
        "figures": [(name, f"{value:.4f}") for name, value in figures.items() if value is not None],
        "missing": column.missing,
    }


def _prepare_outcome(outcome: Outcome) -> dict[str, Any]:
    names = list(outcome.slices[0].metrics) if outcome.slices else []
    return {
        "name": f"{outcome.version}, {outcome.label}," if outcome.label else str(outcome.version),
        "rows": outcome.rows,
        "keyed": outcome.keyed,
        "labelled": outcome.labelled,
        "judged": outcome.checks is not None,
        "checks": make_check_rows(outcome.checks or ()),
        "metrics": names[:_METRICS],
        "slices": outcome.slices[:_SLICES],
        "slices_left": max(0, len(outcome.slices) - _SLICES),
        "evaluated": {format_slice_name(metrics.slice): metrics.intervals for metrics in outcome.evaluated},
    }


def _prepare_difference(difference: VersionDifference) -> dict[str, Any]:
    return {
        "a": difference.a,
        "b": difference.b,
        "units": difference.units,
        "metrics": list(difference.metrics.items()),
    }
