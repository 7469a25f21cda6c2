"""Leakage in a table: columns that alone predict the label nearly perfectly are named, with the figure."""

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
    """Return the columns that alone predict the label, but not those that it is computed from; none of few rows."""
    known = np.flatnonzero(np.isfinite(task.values))
    if len(known) > leakage.ROWS:
        known = known[np.linspace(0, len(known) - 1, leakage.ROWS).astype(np.int64)]
    rows = pa.array(known)
    columns = {name: column.take(rows) for name, column in table.columns.items() if name not in task.columns}
    return {leak.column: leak for leak in leakage.find(columns, task.values[known], task.task).leaks}


def with_leaks(
    columns: Mapping[str, FeatureChoice | ExcludedColumn], found: Mapping[str, Leak]
) -> dict[str, FeatureChoice | ExcludedColumn]:
    """Add to the reasons of columns that they alone predict the label.

    A column that is filled where the label has one value, and an identifier, become no features. Values may predict the
    label because the task is easy, so such a column remains one.
    """
    return {name: _marked(column, found[name]) if name in found else column for name, column in columns.items()}


def _marked(column: FeatureChoice | ExcludedColumn, leak: Leak) -> FeatureChoice | ExcludedColumn:
    if isinstance(column, FeatureChoice) and leak.kind != "value":
        return ExcludedColumn(f"leakage: {leak.why}; make it a feature if it is known when the model predicts")
    remedy = "; remove it if it is not known when the model predicts" if isinstance(column, FeatureChoice) else ""
    return replace(column, why=f"{column.why}; leakage: {leak.why}{remedy}")
