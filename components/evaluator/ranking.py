"""Measures of how a model orders the rows of a group, such as the items that a user was shown.

Rows with equal predictions have no order of their own. Every measure is the mean over all orders of these, computed
exactly, so that it does not depend on how the rows are stored or divided.

Sources: G. Zhou et al., Deep interest network for click-through rate prediction, KDD 2018, section 6.2, and H. Zhu et
al., Optimized cost per click in Taobao display advertising, KDD 2017 (the area by group); K. Järvelin and J.
Kekäläinen, Cumulated gain-based evaluation of IR techniques, ACM TOIS 20, 2002 (NDCG, here with the logarithm from the
second rank on and the label as the gain); F. McSherry and M. Najork, Computing information retrieval performance
measures efficiently in the presence of tied scores, ECIR 2008.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy import special

from components.compat.tfma.columnar import Floats, Ints
from components.evaluator.grouped_rows import GroupedRows

Measured: TypeAlias = tuple[Floats, Floats]
"""The value of each group, [groups], NaN for one that does not count; and the groups' weights, [groups]."""


class Ranking:
    """The rows of groups, ordered by a model's predictions. The rows of a group in a slice are a group of their own.

    Args:
      rows: all rows of these groups; at least one.
      model: the name of the model.

    Attributes:
      slices: number of the slice of each group; [groups].
    """

    def __init__(self, rows: GroupedRows, model: str) -> None:
        at, numbers = rows.slices.rows, rows.slices.numbers
        distinct, codes = np.unique(rows.groups, return_inverse=True)
        keys, scores = numbers * len(distinct) + codes[at], rows.scores[model][at]
        order = np.lexsort((-scores, keys))
        keys, scores = keys[order], scores[order]
        is_first = np.diff(keys, prepend=-1) != 0
        is_tied = np.append(False, scores[1:] == scores[:-1]) & ~is_first
        self._starts, self._blocks = np.flatnonzero(is_first), np.flatnonzero(~is_tied)
        self._sizes = np.diff(self._starts, append=len(keys))
        self._block_sizes = np.diff(self._blocks, append=len(keys))
        self._ranks = np.arange(1, len(keys) + 1) - np.repeat(self._starts, self._sizes)
        self._labels, self._scores = rows.labels[at][order].astype(np.float64), scores
        self._weights = np.ones(len(keys)) if rows.weights is None else rows.weights[at][order]
        self._keys = keys
        self.slices: Ints = numbers[order][self._starts]

    def area(self) -> Measured:
        """Compute the area under the ROC curve of each group with both classes; its weight is that of its rows.

        Two rows with equal predictions count half.
        """
        positives, negatives = (
            np.add.reduceat(self._weights * each, self._blocks) for each in (self._labels, 1 - self._labels)
        )
        starts = np.searchsorted(self._blocks, self._starts)
        positive, negative = (np.add.reduceat(each, starts) for each in (positives, negatives))
        above = np.cumsum(negatives) - negatives
        above -= np.repeat(above[starts], np.diff(starts, append=len(above)))
        pairs = positives * (np.repeat(negative, np.diff(starts, append=len(above))) - above - negatives / 2)
        return _ratio(np.add.reduceat(pairs, starts), positive * negative), self._of_groups(self._weights)

    def discounted_gain(self, most: int) -> Measured:
        """Compute the discounted cumulated gain of the first rows of each group, as a share of the greatest possible.

        Args:
          most: number of rows.
        """
        discounts = np.where(self._ranks <= most, 1 / np.log2(1.0 + self._ranks), 0.0)
        ideal = self._labels[np.lexsort((-self._labels, self._keys))]
        gain, greatest = (self._of_groups(each * discounts) for each in (self._expected, ideal))
        return _ratio(gain, greatest), np.ones(len(gain))

    def recall(self, most: int) -> Measured:
        """Compute the share of the labels 1 of each group that its first rows have.

        Args:
          most: number of rows.
        """
        return _ratio(self._found(most), self._relevant), np.ones(len(self._starts))

    def precision(self, most: int) -> Measured:
        """Compute the labels 1 among the first rows of each group with any, divided by `most`.

        Args:
          most: number of rows.
        """
        shares = np.where(self._relevant > 0, self._found(most) / most, np.nan)
        return shares, np.ones(len(self._starts))

    def reciprocal_rank(self, most: int | None) -> Measured:
        """Compute 1 / rank of the first row with a label above 0; 0 if that is beyond `most`.

        Args:
          most: number of rows; None: all.
        """
        relevant = np.add.reduceat((self._labels > 0).astype(np.int64), self._blocks)
        of_group: Ints = np.asarray(np.searchsorted(self._starts, self._blocks, side="right")) - 1
        found = np.flatnonzero(relevant)
        blocks = found[np.diff(of_group[found], prepend=-1) != 0]
        groups = of_group[blocks]
        # Of n tied rows with m relevant ones, the first one is number j in C(n - j, m - 1) of C(n, m) orders.
        sizes, count = self._block_sizes[blocks], relevant[blocks]
        own = np.repeat(np.arange(len(blocks)), sizes)
        number = np.arange(len(own)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
        n, m = sizes[own], count[own]
        possible = number <= n - m + 1
        own, number, n, m = own[possible], number[possible], n[possible], m[possible]
        probability = np.exp(_log_choose(n - number, m - 1) - _log_choose(n, m))
        ranks = self._ranks[self._blocks[blocks]][own] + number - 1
        terms = probability / ranks if most is None else np.where(ranks <= most, probability / ranks, 0.0)
        values = np.full(len(self._starts), np.nan)
        values[groups] = np.bincount(own, terms, len(blocks))
        return values, np.ones(len(values))

    def item_recall(self, most: int) -> Measured:
        """Compute the share of each group's interactions whose item is among the first ones of a retrieval.

        The predictions are the ranks of the rows' items among all items, 0 for a miss; rows with label 1 are
        interactions. As in most libraries, the divisor is the number of interactions, also if that is above `most`.

        Args:
          most: Number of items.
        """
        found = (self._scores > 0) & (self._scores <= most)
        return _ratio(self._of_groups(self._labels * found), self._relevant), np.ones(len(self._starts))

    def item_gain(self, most: int) -> Measured:
        """Compute the discounted cumulated gain of each group's items in a retrieval, as a share of the greatest one.

        The greatest one has all items of the group's interactions on the first ranks. An interaction has at best the
        rank that it has among the group's interactions: several of them may have the same rank if they are with the
        same item or have different queries, and the share would exceed 1.

        Args:
          most: Number of items; other arguments as for `item_recall`.
        """
        ranks = np.where(self._scores > 0, self._scores, np.inf)
        order = np.lexsort((ranks, self._labels == 0, self._keys))
        labels, ranks = self._labels[order], np.maximum(ranks[order], self._ranks)
        gain, greatest = (
            self._of_groups(labels * np.where(each <= most, 1 / np.log2(1.0 + each), 0.0))
            for each in (ranks, self._ranks)
        )
        return _ratio(gain, greatest), np.ones(len(gain))

    @cached_property
    def _expected(self) -> Floats:
        """The mean label of the rows that are tied with each row; [rows]."""
        return np.repeat(np.add.reduceat(self._labels, self._blocks) / self._block_sizes, self._block_sizes)

    @cached_property
    def _relevant(self) -> Floats:
        return self._of_groups(self._labels)

    def _found(self, most: int) -> Floats:
        return self._of_groups(np.where(self._ranks <= most, self._expected, 0.0))

    def _of_groups(self, values: Floats) -> Floats:
        sums: Floats = np.add.reduceat(values, self._starts)
        return sums


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


def _log_choose(n: Ints, k: Ints) -> Floats:
    found: Floats = special.gammaln(n + 1.0) - special.gammaln(k + 1.0) - special.gammaln(n - k + 1.0)
    return found
