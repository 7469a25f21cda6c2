"""Judge the requests to a version: find the columns and the predictions that have drifted."""

from __future__ import annotations

from collections.abc import Sequence

from components.base.bounds import is_at_least
from components.data.column_comparison import Columns, compare
from components.monitor.config import MonitorConfig
from components.monitor.result import Finding, Judgement
from components.results.column_comparison import ColumnComparison


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
        measured = [
            ("distance", column.distance, bound),
            ("missing", abs(now - before), bound),
            ("new values", column.new, config.new_values),
        ]
        if column.p_value < config.false_alarms:
            findings += [
                Finding(column.name, figure, value, limit)
                for figure, value, limit in measured
                if value is not None and is_at_least(value, limit, before, now)
            ]
    return findings
