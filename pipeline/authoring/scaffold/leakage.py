"""Detects leakage in a table: columns that alone predict the label nearly perfectly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from components.features import leakage
from components.features.leakage import Leak
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.sample import Table


def leaks(table: Table, task: LearningTask) -> dict[str, Leak]:
    """Return column name → leak, for columns that alone predict the label.

    Columns that the label depends on are not checked. A table with few rows never has leaks, because a column may
    predict a few labels by chance.
    """
    known = np.flatnonzero(np.isfinite(task.values))
    if len(known) > leakage.ROWS:
        known = known[np.linspace(0, len(known) - 1, leakage.ROWS).astype(np.int64)]
    rows = pa.array(known)
    columns = {name: column.take(rows) for name, column in table.columns.items() if name not in task.columns}
    return {leak.column: leak for leak in leakage.find(columns, task.values[known], task.task).leaks}


def with_leaks(
    columns: Mapping[str, FeatureChoice | ExcludedColumn], found: Mapping[str, Leak]
) -> dict[str, FeatureChoice | ExcludedColumn]:
    """Add a warning to the reasons of columns that alone predict the label.

    Exclude a column that is filled only for one value of the label, and an identifier. Keep a column whose values
    predict the label, because the task may simply be easy.
    """
    return {name: _mark_leak(column, found[name]) if name in found else column for name, column in columns.items()}


def _mark_leak(column: FeatureChoice | ExcludedColumn, leak: Leak) -> FeatureChoice | ExcludedColumn:
    if isinstance(column, FeatureChoice) and leak.kind in ("filled", "order"):
        return ExcludedColumn(f"leakage: {leak.why}; make it a feature if it is known when the model predicts")
    remedy = "; remove it if it is not known when the model predicts" if isinstance(column, FeatureChoice) else ""
    return replace(column, why=f"{column.why}; leakage: {leak.why}{remedy}")
