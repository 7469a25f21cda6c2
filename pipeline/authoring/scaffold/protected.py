"""Excludes attributes of persons that laws protect from discrimination from the features that `init` proposes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from components.base.errors import InputError
from components.base.names import column_name, did_you_mean
from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice


def exclude_protected(
    columns: Mapping[str, FeatureChoice | ExcludedColumn], protected: Collection[str], kept: Collection[str]
) -> dict[str, FeatureChoice | ExcludedColumn]:
    """Exclude protected attributes from the features.

    Args:
      columns: Column name → its features, or the reason why it is excluded.
      protected: The columns that contain protected attributes.
      kept: Names or headers of columns that the user wants as features.

    Raises:
      InputError: If the data does not have one of the kept columns.
    """
    for name in kept:
        if column_name(name) not in columns:
            raise InputError(
                f"--keep: the data has no column {name!r}{did_you_mean(name, columns)}",
                "give the names of columns that init excluded as protected attributes",
            )
    excluded = {*protected} - {column_name(name) for name in kept}
    return {
        name: ExcludedColumn(f"a protected attribute of persons; --keep {name} makes it a feature")
        if isinstance(column, FeatureChoice) and name in excluded
        else column
        for name, column in columns.items()
    }
