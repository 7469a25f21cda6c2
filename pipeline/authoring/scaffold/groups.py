"""Recognises the column whose rows belong together, such as the person that several rows are about."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice
from pipeline.authoring.scaffold.identifiers import names_a_group
from pipeline.authoring.scaffold.label import LearningTask
from pipeline.authoring.scaffold.sample import Table

_LEAST_GROUPS = 20
"""Minimum number of groups, so that every split gets some."""
_ROWS_OF_GROUP = (1.1, 20.0)
"""Bounds of the mean number of rows per group. With fewer rows, nearly all groups have one. With more, a group such as
a shop is known when the model predicts, and its embedding can be trained."""


def find_group(table: Table, task: LearningTask, columns: Mapping[str, FeatureChoice | ExcludedColumn]) -> str | None:
    """Find the column of IDs whose rows have to be in the same split.

    A model that has seen other rows of a person would be better on the eval split than on new persons.

    Args:
      table: Sample of the data.
      task: Label and learning task.
      columns: Column name → its features, or the reason why it is excluded.

    Returns:
      The column. None if there is none, or several, such as the users and items of interactions, which a model has to
      know.
    """
    features = {name: column for name, column in columns.items() if isinstance(column, FeatureChoice)}
    if any(column.is_history for column in features.values()):
        return None
    found = [
        name
        for name in columns
        if name not in task.columns and names_a_group(name) and _has_groups(table.columns[name])
    ]
    # A model of the IDs alone, such as the popularity of items, has to know them.
    return found[0] if len(found) == 1 and features.keys() - {*found} else None


def exclude_group(name: str, column: pa.Array) -> ExcludedColumn:
    """Return the decision on the column of the groups."""
    groups = pc.count_distinct(column).as_py()
    return ExcludedColumn(
        f"an identifier, {groups:,} values in {len(column):,} rows: rows with the same {name} stay in one split, "
        "because the model predicts for others later"
    )


def _has_groups(column: pa.Array) -> bool:
    # Rows without an ID would be one large group.
    if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_binary(column.type)):
        return False
    groups = pc.count_distinct(column).as_py()
    least, most = _ROWS_OF_GROUP
    return bool(groups >= _LEAST_GROUPS) and least <= len(column) / groups < most
