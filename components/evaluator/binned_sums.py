"""The accumulator of columnar metrics: sums of rows by slice and bin, which merge in any order.

See components/compat/tfma/columnar: a metric assigns a bin and summands to each row, and everything is computed from
the sums. So it makes no difference, except for the rounding of floats, how the rows are divided and merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from components.compat.tfma.columnar import Binned, Floats, Ints, Sums
from components.compat.tfma.evaluation import SliceKey
from components.evaluator import ordered_bins

_DENSE = 1 << 20
"""Greatest number of counters of a batch that are kept in one array; more are sorted."""


@dataclass(frozen=True)
class Slices:
    """The slices of some rows.

    Attributes:
      keys: the slices, numbered by their position.
      rows: a row and a slice that it is in, for each such pair: the row; [pairs].
      numbers: the slice; [pairs].
    """

    keys: Sequence[SliceKey]
    rows: Ints
    numbers: Ints


@dataclass(frozen=True)
class Table:
    """The sums of one metric.

    Attributes:
      slices: number of the slice, ascending; [cells].
      bins: the bin, ascending in a slice; [cells].
      rows: number of rows, or the sum of their weights; [cells].
      sums: sums of the summands; [cells, sums].
      ordered: whether the bins are those of `ordered_bins`.
    """

    slices: Ints
    bins: Ints
    rows: Floats
    sums: Floats
    ordered: bool = False

    def of_slice(self, number: int) -> Sums:
        """Return the sums of one slice."""
        cells = slice(*(int(np.searchsorted(self.slices, each)) for each in (number, number + 1)))
        return Sums(self.bins[cells], self.rows[cells], self.sums[cells])


EMPTY = Table(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty((0, 0)))
"""The sums of no rows, of any metric."""


@dataclass(frozen=True)
class Counted:
    """The sums of all metrics over some rows.

    Attributes:
      keys: the slices, numbered by their position.
      tables: the sums of each columnar metric, and of each one of groups.
      others: slice → the accumulator of TFMA's combiners of all other metrics.
    """

    keys: Sequence[SliceKey]
    tables: Sequence[Table]
    others: dict[SliceKey, Any] = field(default_factory=dict)


def count(binned: Binned, slices: Slices, weights: Floats | None = None, *, ordered: bool = False) -> Table:
    """Add up rows.

    Args:
      binned: bin and summands of each row.
      slices: the rows' slices.
      weights: of the rows, by which the summands are multiplied; None: all count the same.
      ordered: whether the bins are those of `ordered_bins`.
    """
    bins, summands = binned
    if bins.ndim > 1:
        return count(*_one_bin_each(bins, summands, slices, weights))
    distinct, inverse = np.unique(bins, return_inverse=True)
    cells = slices.numbers * len(distinct) + inverse[slices.rows]
    size = len(slices.keys) * len(distinct)
    if size > _DENSE:
        occupied, cells = np.unique(cells, return_inverse=True)
        rows, size = np.bincount(cells), len(occupied)
        at = slice(None)
    else:
        rows = np.bincount(cells, minlength=size)
        at = occupied = np.flatnonzero(rows)
    if weights is not None:
        rows = np.bincount(cells, weights[slices.rows], size)
        summands = summands * weights[:, np.newaxis]
    sums = [np.bincount(cells, each[slices.rows], size)[at] for each in summands.T]
    stacked = np.stack(sums, axis=1) if sums else np.empty((len(occupied), 0))
    numbers, of_bins = occupied // len(distinct), distinct[occupied % len(distinct)]
    return Table(numbers, of_bins, rows[at].astype(np.float64), stacked, ordered)


def _one_bin_each(
    bins: Ints, summands: Floats, slices: Slices, weights: Floats | None
) -> tuple[Binned, Slices, Floats | None]:
    """Return a row for each bin of each row."""
    of_row = bins.shape[1]
    rows = (slices.rows[:, np.newaxis] * of_row + np.arange(of_row)).ravel()
    repeated = Slices(slices.keys, rows, np.repeat(slices.numbers, of_row))
    weights = None if weights is None else np.repeat(weights, of_row)
    return (bins.ravel(), np.repeat(summands, of_row, axis=0)), repeated, weights


def merge(parts: Iterable[Counted]) -> tuple[Sequence[SliceKey], list[Table]]:
    """Add up the tables of several parts.

    Returns:
      The slices of all parts, and the sums of each metric.
    """
    numbers: dict[SliceKey, int] = {}
    tables: list[list[Table]] = []
    for part in parts:
        of_part = np.array([numbers.setdefault(key, len(numbers)) for key in part.keys], np.int64)
        tables.append([replace(each, slices=of_part[each.slices]) for each in part.tables])
    return list(numbers), [added(of_metric) for of_metric in zip(*tables, strict=True)]


def added(tables: Sequence[Table]) -> Table:
    """Add up the tables of one metric, whose slices have the same numbers."""
    tables = [each for each in tables if len(each.slices)] or [EMPTY]
    slices, bins, rows, sums = (
        np.concatenate([getattr(each, name) for each in tables]) for name in ("slices", "bins", "rows", "sums")
    )
    ordered = any(each.ordered for each in tables)
    if ordered and len(slices):
        bins = ordered_bins.align(slices, bins)
    order = np.lexsort((bins, slices))
    slices, bins = slices[order], bins[order]
    starts = np.flatnonzero((np.diff(slices, prepend=-1) != 0) | (np.diff(bins, prepend=0) != 0))
    if not len(starts):
        return Table(slices, bins, rows, sums, ordered)
    rows, sums = (np.add.reduceat(each[order], starts) for each in (rows, sums))
    table = Table(slices[starts], bins[starts], rows, sums, ordered)
    fewer = ordered_bins.fit(table.slices, table.bins) if ordered else None
    return table if fewer is None else added([replace(table, bins=fewer)])
