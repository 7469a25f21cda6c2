"""Detects histories: lists of earlier values of another column, such as the items clicked before, oldest first."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice, epoch_unit, vocabulary
from pipeline.authoring.scaffold.sample import Table, kind, numbers

_COMMON = 0.5
"""Minimum share of distinct values that two columns have in common if one is the history of the other."""
_LEAST_VALUES = 10
"""Minimum number of distinct whole numbers in lists of IDs. Fewer small numbers coincide by chance."""

Choices = dict[str, FeatureChoice | ExcludedColumn]


def with_histories(
    table: Table, choices: Mapping[str, FeatureChoice | ExcludedColumn], excluded: Collection[str]
) -> Choices:
    """Replace the choices for histories, and for lists that describe the events of a history.

    The column that a history repeats gets a vocabulary that both share.

    Args:
      table: Sample of the data.
      choices: Column name → its features, or the reason why it is excluded.
      excluded: Columns that are not features: the columns of the label, and columns that predict it by leakage.

    Returns:
      The choices for all columns.
    """
    updated = dict(choices)
    lists = [name for name, column in table.columns.items() if kind(column) == "lists"]
    single = [name for name in table.columns if name not in (*lists, *excluded)]
    of = {name: repeated for name in lists if (repeated := _column_of(table, name, single)) is not None}
    # Sort by the number of distinct values, because the list with the most values is the main history. Lists of the
    # same lengths, such as the categories of the items, describe its events.
    ordered = sorted(of, key=lambda name: -_distinct(table.columns[name].flatten()))
    for name in ordered:
        main = next(candidate for candidate in ordered if _are_along(table, name, candidate))
        options = {
            "of": of[name],
            "max_values": _most(table.columns[name]),
            **({"along": main} if main != name else {}),
        }
        distinct = _distinct(table.columns[name].flatten())
        updated[name] = FeatureChoice(
            ({"sequence": options},), f"earlier values of {of[name]}, {distinct:,} of them", 0
        )
        # The column and its history share one vocabulary, so count the distinct values of both.
        ids = _distinct(pa.concat_arrays([table.columns[of[name]], table.columns[name].flatten()]))
        updated[of[name]] = vocabulary(ids, [f"{ids:,} values, which {name} repeats"])
    for name in lists:
        along = next((history for history in ordered if _are_along(table, name, history)), None)
        if name not in of and along is not None and (unit := _unit(table.columns[name])):
            options = {"max_values": _most(table.columns[name]), "along": along, "unit": unit}
            until = next((column for column in single if _is_later(table, column, name, unit)), None)
            options |= {"until": until} if until else {}
            updated[name] = FeatureChoice(({"time_gaps": options},), f"the times of {along}", 0)
    return updated


def _column_of(table: Table, name: str, single: list[str]) -> str | None:
    """Return the column with the most values in common with these lists; None if no column has enough of them."""
    values = pc.drop_null(table.columns[name].flatten()).unique()
    if pa.types.is_floating(values.type) or len(values) < (_LEAST_VALUES if pa.types.is_integer(values.type) else 2):
        return None
    shares = {}
    for column in single:
        distinct = table.columns[column].drop_null().unique()
        if distinct.type == values.type:
            common = pc.sum(pc.is_in(distinct, value_set=values)).as_py() or 0
            shares[column] = common / (len(distinct) + len(values) - common)
    best = max(shares, key=lambda column: shares[column], default=None)
    return best if best is not None and shares[best] >= _COMMON else None


def _are_along(table: Table, first: str, second: str) -> bool:
    """Check whether the lists of two columns have the same length in every row."""
    lengths = [np.asarray(pc.list_value_length(table.columns[name]).fill_null(0)) for name in (first, second)]
    return bool((lengths[0] == lengths[1]).all())


def _most(column: pa.Array) -> int:
    return max(2, int(np.quantile(np.asarray(pc.list_value_length(column).fill_null(0)), 0.99)))


def _unit(column: pa.Array) -> str | None:
    """Return the unit of lists of times since 1970; None if the values are not such times."""
    values = column.flatten().drop_null()
    return epoch_unit(numbers(values)) if pa.types.is_integer(values.type) and len(values) else None


def _is_later(table: Table, name: str, lists: str, unit: str) -> bool:
    """Check whether a column contains times that are not earlier than the times of the lists in any row."""
    if kind(table.columns[name]) != "int":
        return False
    now, times = numbers(table.columns[name]), table.columns[lists]
    if np.isnan(now).all() or epoch_unit(now[~np.isnan(now)]) != unit:
        return False
    rows = np.asarray(pc.list_parent_indices(times))
    return not (numbers(times.flatten()) > now[rows]).any()


def _distinct(values: pa.Array) -> int:
    return int(pc.count_distinct(values.drop_null()).as_py())
