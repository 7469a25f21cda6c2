"""Histories: lists of values that another column has now, such as the items clicked before, oldest first."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.authoring.scaffold.feature_choice import ExcludedColumn, FeatureChoice, epoch_unit, vocabulary
from pipeline.authoring.scaffold.sample import Table, kind, numbers

_COMMON = 0.5
"""Share of the different values of both columns that both have, from which one is the history of the other."""
_LEAST_VALUES = 10
"""Different values from which a list of whole numbers may be one of ids: small numbers are equal by chance."""

Choices = dict[str, FeatureChoice | ExcludedColumn]


def with_histories(
    table: Table, choices: Mapping[str, FeatureChoice | ExcludedColumn], excluded: Collection[str]
) -> Choices:
    """Return the choices with operations on histories: lists of another column's values, and lists along with them.

    Args:
      table: the data.
      choices: column → its features, or why it is excluded.
      excluded: columns that are no features: those of the label, and those that tell it.
    """
    found = dict(choices)
    lists = [name for name, column in table.columns.items() if kind(column) == "lists"]
    single = [name for name in table.columns if name not in (*lists, *excluded)]
    of = {name: other for name in lists if (other := _column_of(table, name, single)) is not None}
    # The one with the most values first: what has a value for each of its events, such as a category, belongs to it.
    ordered = sorted(of, key=lambda name: -_distinct(table.columns[name].flatten()))
    for name in ordered:
        main = next(each for each in ordered if _are_along(table, name, each))
        options = {
            "of": of[name],
            "max_values": _most(table.columns[name]),
            **({"along": main} if main != name else {}),
        }
        distinct = _distinct(table.columns[name].flatten())
        found[name] = FeatureChoice(({"sequence": options},), f"earlier values of {of[name]}, {distinct:,} of them", 0)
        # Both share the vocabulary, which is counted in both.
        ids = _distinct(pa.concat_arrays([table.columns[of[name]], table.columns[name].flatten()]))
        found[of[name]] = vocabulary(ids, [f"{ids:,} values, which {name} repeats"])
    for name in lists:
        along = next((each for each in ordered if _are_along(table, name, each)), None)
        if name not in of and along is not None and (unit := _unit(table.columns[name])):
            options = {"max_values": _most(table.columns[name]), "along": along, "unit": unit}
            until = next((each for each in single if _is_later(table, each, name, unit)), None)
            options |= {"until": until} if until else {}
            found[name] = FeatureChoice(({"time_gaps": options},), f"the times of {along}", 0)
    return found


def _column_of(table: Table, name: str, single: list[str]) -> str | None:
    """Return the column that has the same values as these lists; None if there is none."""
    values = pc.drop_null(table.columns[name].flatten()).unique()
    if pa.types.is_floating(values.type) or len(values) < (_LEAST_VALUES if pa.types.is_integer(values.type) else 2):
        return None
    shares = {}
    for other in single:
        own = table.columns[other].drop_null().unique()
        if own.type == values.type:
            common = pc.sum(pc.is_in(own, value_set=values)).as_py() or 0
            shares[other] = common / (len(own) + len(values) - common)
    best = max(shares, key=lambda each: shares[each], default=None)
    return best if best is not None and shares[best] >= _COMMON else None


def _are_along(table: Table, one: str, other: str) -> bool:
    """Whether two columns have as many values as each other in every row."""
    lengths = [np.asarray(pc.list_value_length(table.columns[name]).fill_null(0)) for name in (one, other)]
    return bool((lengths[0] == lengths[1]).all())


def _most(column: pa.Array) -> int:
    return max(2, int(np.quantile(np.asarray(pc.list_value_length(column).fill_null(0)), 0.99)))


def _unit(column: pa.Array) -> str | None:
    """Return the unit of a list of times; None if it has other values."""
    values = column.flatten().drop_null()
    return epoch_unit(numbers(values)) if pa.types.is_integer(values.type) and len(values) else None


def _is_later(table: Table, name: str, lists: str, unit: str) -> bool:
    """Whether a column has the times after those of the lists, in all rows that have both."""
    if kind(table.columns[name]) != "int":
        return False
    now, times = numbers(table.columns[name]), table.columns[lists]
    if np.isnan(now).all() or epoch_unit(now[~np.isnan(now)]) != unit:
        return False
    rows = np.asarray(pc.list_parent_indices(times))
    return not (numbers(times.flatten()) > now[rows]).any()


def _distinct(values: pa.Array) -> int:
    return int(pc.count_distinct(values.drop_null()).as_py())
