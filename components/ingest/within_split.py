"""Splits the rows of each group, such as a user, by an order within the group.

The order is a time, or a hash of columns, or a time with a hash for equal times. Rows that are equal in the order are
in the same split, so that a row's split does not depend on the order in which files are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

U64: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowOrder:
    """Where rows are in the order of their group; 24 bytes per row.

    Attributes:
      groups: Hash of each row's group, [rows].
      times: Microseconds since 1970, or 0, [rows].
      hashes: The order of rows with equal times, [rows].
    """

    groups: U64
    times: I64
    hashes: U64


@dataclass(frozen=True)
class GroupBorders:
    """The last row of each split but the last one, in each group.

    Attributes:
      groups: Hashes of the groups, ascending, [groups].
      times: See RowOrder, [groups, splits - 1].
      hashes: See RowOrder, [groups, splits - 1].
    """

    groups: U64
    times: I64
    hashes: U64

    def assign(self, rows: RowOrder) -> npt.NDArray[np.intp]:
        """Return the split of each row: the number of borders that the row is behind; [rows].

        Args:
          rows: Rows of the groups.
        """
        at = np.searchsorted(self.groups, rows.groups)
        times, hashes = rows.times[:, np.newaxis], rows.hashes[:, np.newaxis]
        is_behind = (times > self.times[at]) | ((times == self.times[at]) & (hashes > self.hashes[at]))
        return is_behind.sum(axis=1).astype(np.intp)


def borders(parts: Iterable[RowOrder], shares: Sequence[int]) -> GroupBorders:
    """Compute the borders with which each split has its share of the rows of each group.

    The number of rows up to a border is rounded to the nearest one, and half a row up. The first split has a row of
    each group.

    Args:
      parts: All rows, in any order.
      shares: The share of each split.
    """
    found = list(parts)
    if not found:
        found = [RowOrder(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.uint64))]
    groups, times, hashes = (np.concatenate(each) for each in zip(*map(_columns, found), strict=True))
    order = np.lexsort((hashes, times, groups))
    names, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    total = sum(shares)
    # In whole numbers, since half a row must be the same on every machine.
    ends = (2 * counts[:, np.newaxis] * np.cumsum(shares)[:-1] + total) // (2 * total)
    last = order[starts[:, np.newaxis] + np.maximum(ends, 1) - 1]
    return GroupBorders(names, times[last], hashes[last])


def _columns(part: RowOrder) -> tuple[U64, I64, U64]:
    return part.groups, part.times, part.hashes
