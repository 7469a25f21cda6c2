"""Judges the requests that a version has answered: which columns, and which predictions, have drifted."""

from __future__ import annotations

from collections.abc import Sequence

from components.bounds import is_at_least
from components.monitor.comparison import Columns, compare
from components.monitor.config import MonitorConfig
from components.monitor.result import ColumnComparison, Finding, Judgement


def judge(version: int, rows: int, reference: tuple[str, Columns], sample: Columns, config: MonitorConfig) -> Judgement:
    """Compares the columns that both have.

    Args:
      version: the version that has answered.
      rows: rows in the window, of which `sample` may be a part.
      reference: a name, and the columns of at least one row.
      sample: the columns of the requests.
      config: bounds.
    """
    name, columns = reference
    reference_rows, compared = len(next(iter(columns.values()))), len(next(iter(sample.values())))
    compared_columns = compare(columns, sample)
    findings = None if compared < config.least_rows else tuple(_findings(compared_columns, config))
    return Judgement(version, name, rows, compared, reference_rows, tuple(compared_columns), findings)


def _findings(columns: Sequence[ColumnComparison], config: MonitorConfig) -> list[Finding]:
    found = []
    for column in columns:
        bound = config.bounds.get(column.name, config.bound)
        before, now = column.missing
        measured = [
            ("distance", column.distance, bound),
            ("missing", abs(now - before), bound),
            ("new values", column.new, config.new_values),
        ]
        if column.p_value < config.false_alarms:
            found += [
                Finding(column.name, what, value, limit)
                for what, value, limit in measured
                if value is not None and is_at_least(value, limit, before, now)
            ]
    return found
