"""Prepares the report's section on served requests.

It shows the distributions of requests and training rows, and metrics computed from labels that arrived later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.base.node import ReportSection
from components.evaluator.verdict import SliceMetrics, format_slice
from components.monitor.result import Judgement, Monitoring, Outcome
from components.results.column_comparison import ColumnComparison

_COLUMNS = 24
"""Maximum number of columns that are drawn per version. The columns that differ most are drawn."""
_BINS = 5
"""Number of bins in the table of a column, which shows the bins whose shares differ most."""
_SLICES = 50


def make_section(result: Monitoring) -> ReportSection:
    """Return the section of a result, with the template `report_section.html`."""
    values = {
        "findings": list(result.findings()),
        "judgements": [
            (judgement, [_prepare_column(column, judgement) for column in judgement.columns[:_COLUMNS]])
            for judgement in result.judgements
        ],
        "outcomes": [(outcome, _list_slices(outcome)) for outcome in result.outcomes],
        "differences": result.differences,
    }
    return ReportSection("monitoring", "Served requests", Path(__file__).with_suffix(".html"), values)


def _prepare_column(column: ColumnComparison, judgement: Judgement) -> dict[str, Any]:
    reference = [column_bin.reference for column_bin in column.bins]
    sample = [column_bin.sample for column_bin in column.bins]
    charts = {}
    for name, shares in ((judgement.reference, reference), ("served", sample)) if column.bins else ():
        share = max(shares)
        description = f"most in {column.bins[shares.index(share)].label}: {100 * share:.1f} %"
        charts[name] = (shares, max(*reference, *sample), f"{column.name} in {name}", description)
    figures = {"distance": column.distance, "PSI": column.psi, "p-value": column.p_value, "new values": column.new}
    figures |= {"new values expected": column.expected_new, "out of range": column.out_of_range}
    figures |= {"tails": column.tails and column.tails[1], "tails expected": column.tails and column.tails[0]}
    most_different = sorted(column.bins, key=lambda column_bin: -abs(column_bin.reference - column_bin.sample))
    return {
        "name": column.name,
        "drifted": column.name in {finding.column for finding in judgement.findings or ()},
        "charts": charts,
        "bins": most_different[:_BINS],
        "figures": [(name, f"{value:.4f}") for name, value in figures.items() if value is not None],
        "missing": column.missing,
    }


def _list_slices(outcome: Outcome) -> list[tuple[SliceMetrics, dict[str, tuple[float, float]]]]:
    """Return the metrics of the slices, each with the intervals that the Evaluator measured for the same slice."""
    evaluated = {format_slice(metrics.slice): metrics.intervals for metrics in outcome.evaluated}
    return [(metrics, evaluated.get(format_slice(metrics.slice), {})) for metrics in outcome.slices[:_SLICES]]
