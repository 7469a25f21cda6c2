"""The accumulator of columnar metrics: sums of rows by slice and bin, which merge in any order.

See components/evaluator/binning: a metric assigns a bin and summands to each row, and everything else is computed from
the sums. The result does not depend on how the rows are divided and merged, except for the rounding of floats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from components.compat.tfma.evaluation import SliceKey
from components.evaluator import ordered_bins
from components.evaluator.binning import Binned, Floats, Ints, Sums

_DENSE = 1 << 20
"""Maximum number of counters that a batch keeps in one array; more counters are sorted instead."""


@dataclass(frozen=True)
class Slices:
    """The slices of some rows.

    Attributes:
      keys: The slices, numbered by their position.
      rows: Rows of all pairs of a row and a slice that contains it; [pairs].
      numbers: Numbers of the slices in these pairs; [pairs].
    """

    keys: Sequence[SliceKey]
    rows: Ints
    numbers: Ints


@dataclass(frozen=True)
class Table:
    """The sums of one metric.

    Attributes:
      slices: Number of the slice, ascending; [cells].
      bins: The bin, ascending within a slice; [cells].
      rows: Number of rows, or the sum of their weights; [cells].
      sums: Sums of the summands; [cells, sums].
      ordered: Whether the bins are bins of `ordered_bins`.
    """

    slices: Ints
    bins: Ints
    rows: Floats
    sums: Floats
    ordered: bool = False

    def select_slice(self, number: int) -> Sums:
        """Return the sums of a slice."""
        start, stop = int(np.searchsorted(self.slices, number)), int(np.searchsorted(self.slices, number + 1))
        cells = slice(start, stop)
        return Sums(self.bins[cells], self.rows[cells], self.sums[cells])


EMPTY = Table(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty((0, 0)))
"""The sums of any metric without rows."""


@dataclass(frozen=True)
class Counted:
    """The sums of all metrics over some rows.

    Attributes:
      keys: The slices, numbered by their position.
      tables: Sums of the columnar metrics, followed by the sums of the grouped metrics.
      row_by_row: Slice → the accumulator of TFMA's combiners, which compute all other metrics.
    """

    keys: Sequence[SliceKey]
    tables: Sequence[Table]
    row_by_row: dict[SliceKey, Any] = field(default_factory=dict)


def count(binned: Binned, slices: Slices, weights: Floats | None = None, *, ordered: bool = False) -> Table:
    """Add up rows.

    Args:
      binned: Bin and summands of the rows.
      slices: Slices of the rows.
      weights: Weights of the rows, which multiply the summands. If None, all rows count the same.
      ordered: Whether the bins are bins of `ordered_bins`.
    """
    bins, summands = binned
    if bins.ndim > 1:
        return count(*_repeat_rows(bins, summands, slices, weights))
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
    sums = [np.bincount(cells, column[slices.rows], size)[at] for column in summands.T]
    stacked = np.stack(sums, axis=1) if sums else np.empty((len(occupied), 0))
    numbers, occupied_bins = occupied // len(distinct), distinct[occupied % len(distinct)]
    return Table(numbers, occupied_bins, rows[at].astype(np.float64), stacked, ordered)


def _repeat_rows(
    bins: Ints, summands: Floats, slices: Slices, weights: Floats | None
) -> tuple[Binned, Slices, Floats | None]:
    """Repeat each row once per bin, so that every row has one bin."""
    times = bins.shape[1]
    rows = (slices.rows[:, np.newaxis] * times + np.arange(times)).ravel()
    repeated = Slices(slices.keys, rows, np.repeat(slices.numbers, times))
    weights = None if weights is None else np.repeat(weights, times)
    return (bins.ravel(), np.repeat(summands, times, axis=0)), repeated, weights


def merge(parts: Iterable[Counted]) -> tuple[Sequence[SliceKey], list[Table]]:
    """Add up the tables of several parts.

    Returns:
      The slices of all parts, and one table of sums per metric.
    """
    numbers: dict[SliceKey, int] = {}
    tables: list[list[Table]] = []
    for part in parts:
        new_numbers = np.array([numbers.setdefault(key, len(numbers)) for key in part.keys], np.int64)
        tables.append([replace(table, slices=new_numbers[table.slices]) for table in part.tables])
    return list(numbers), [add_tables(metric_tables) for metric_tables in zip(*tables, strict=True)]


def add_tables(tables: Sequence[Table]) -> Table:
    """Add up the tables of one metric, whose slices have the same numbers."""
    tables = [table for table in tables if len(table.slices)] or [EMPTY]
    slices, bins, rows, sums = (
        np.concatenate([getattr(table, name) for table in tables]) for name in ("slices", "bins", "rows", "sums")
    )
    ordered = any(table.ordered for table in tables)
    if ordered and len(slices):
        bins = ordered_bins.align(slices, bins)
    order = np.lexsort((bins, slices))
    slices, bins = slices[order], bins[order]
    starts = np.flatnonzero((np.diff(slices, prepend=-1) != 0) | (np.diff(bins, prepend=0) != 0))
    if not len(starts):
        return Table(slices, bins, rows, sums, ordered)
    rows, sums = np.add.reduceat(rows[order], starts), np.add.reduceat(sums[order], starts)
    table = Table(slices[starts], bins[starts], rows, sums, ordered)
    fewer = ordered_bins.fit(table.slices, table.bins) if ordered else None
    return table if fewer is None else add_tables([replace(table, bins=fewer)])
