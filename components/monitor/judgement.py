"""Judge the requests to a version: find the columns and the predictions that have drifted."""

from __future__ import annotations

from collections.abc import Sequence

from components.base.bounds import is_at_least
from components.data.column_comparison import Columns, compare
from components.monitor.config import MonitorConfig
from components.monitor.result import Finding, Judgement
from components.results.column_comparison import (
    DISTANCE,
    MISSING,
    NEW_VALUES,
    OUT_OF_RANGE,
    TAILS,
    ColumnComparison,
)


def judge(version: int, rows: int, reference: tuple[str, Columns], sample: Columns, config: MonitorConfig) -> Judgement:
    """Compare the requests to a version with a reference, and find the columns that have drifted.

    Args:
      version: Number of the version that answered the requests.
      rows: Number of rows in the window. `sample` may contain only a part of them.
      reference: Name of the reference, and its columns. At least one row.
      sample: Columns of the requests and the answers. At least one row.
      config: The bounds, and the number of rows from which a version is judged.
    """
    name, columns = reference
    reference_rows, compared = len(next(iter(columns.values()))), len(next(iter(sample.values())))
    compared_columns = compare(columns, sample)
    findings = None if compared < config.least_rows else tuple(_find_drift(compared_columns, config))
    return Judgement(version, name, rows, compared, reference_rows, tuple(compared_columns), findings)


def _find_drift(columns: Sequence[ColumnComparison], config: MonitorConfig) -> list[Finding]:
    findings = []
    for column in columns:
        bound = config.bounds.get(column.name, config.bound)
        before, now = column.missing
        # Figure → its value, its bound, and the shares whose difference the value is.
        measured: list[tuple[str, float | None, float, tuple[float, ...]]] = [
            (DISTANCE, column.distance, bound, ()),
            (MISSING, abs(now - before), bound, column.missing),
            (OUT_OF_RANGE, column.out_of_range, config.out_of_range, ()),
        ]
        if column.new is not None and column.expected_new is not None:
            shares = (column.expected_new, column.new)
            measured.append((NEW_VALUES, column.new - column.expected_new, config.new_values, shares))
        if column.tails is not None:
            measured.append((TAILS, column.tails[1] - column.tails[0], config.tails, column.tails))
        findings += [
            Finding(column.name, figure, value, limit)
            for figure, value, limit, shares in measured
            if value is not None
            and column.p_values[figure] < config.false_alarms
            and is_at_least(value, limit, *shares)
        ]
    return findings
