"""Split the rows of every group, such as a user, by an order within the group.

The order is a time, a hash of columns, or a time with a hash for equal times. Rows with the same place in the order are
in the same split, so the split of a row does not depend on the order in which files are read.
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
    """The place of rows in the order of their group; 24 bytes per row.

    Attributes:
      groups: Hashes of the rows' groups; shape [rows].
      times: Microseconds since 1970, or 0; shape [rows].
      hashes: Order of rows with equal times; shape [rows].
    """

    groups: U64
    times: I64
    hashes: U64


@dataclass(frozen=True)
class GroupBorders:
    """The last row of every split except the last split, for every group.

    Attributes:
      groups: Hashes of the groups, ascending; shape [groups].
      times: Times of the rows, see RowOrder; shape [groups, splits - 1].
      hashes: Hashes of the rows, see RowOrder; shape [groups, splits - 1].
    """

    groups: U64
    times: I64
    hashes: U64

    def assign(self, rows: RowOrder) -> npt.NDArray[np.intp]:
        """Return the index of every row's split, which is the number of borders before the row; shape [rows].

        Args:
          rows: Rows of the groups.
        """
        at = np.searchsorted(self.groups, rows.groups)
        times, hashes = rows.times[:, np.newaxis], rows.hashes[:, np.newaxis]
        is_behind = (times > self.times[at]) | ((times == self.times[at]) & (hashes > self.hashes[at]))
        return is_behind.sum(axis=1).astype(np.intp)


def borders(parts: Iterable[RowOrder], shares: Sequence[int]) -> GroupBorders:
    """Compute the borders that give every split its share of the rows of every group.

    The number of rows before a border is rounded half up. The first split gets at least one row of every group.

    Args:
      parts: All rows, in any order.
      shares: Shares of the splits.
    """
    orders = list(parts)
    if not orders:
        orders = [RowOrder(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.uint64))]
    groups, times, hashes = (np.concatenate(arrays) for arrays in zip(*map(_columns, orders), strict=True))
    order = np.lexsort((hashes, times, groups))
    names, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    total = sum(shares)
    # Compute with integers, so that half a row is rounded in the same way on every machine.
    ends = (2 * counts[:, np.newaxis] * np.cumsum(shares)[:-1] + total) // (2 * total)
    last = order[starts[:, np.newaxis] + np.maximum(ends, 1) - 1]
    return GroupBorders(names, times[last], hashes[last])


def _columns(part: RowOrder) -> tuple[U64, I64, U64]:
    return part.groups, part.times, part.hashes
