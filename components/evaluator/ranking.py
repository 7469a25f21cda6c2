"""Measures of how a model orders the rows of a group, such as the items that a user was shown.

A model does not order rows with equal predictions. Every measure is the exact mean over all orders of such rows, so
that it does not depend on how the rows are stored or divided.

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

from components.evaluator.binning import Floats, Ints
from components.evaluator.grouped_rows import GroupedRows

Measured: TypeAlias = tuple[Floats, Floats]
"""Value of each group, [groups], NaN for groups that are ignored; and the weights of the groups, [groups]."""


class Ranking:
    """The rows of groups, ordered by a model's predictions.

    The rows of a group that are in a slice form a separate group for each slice.

    Args:
      rows: All rows of these groups; at least one row.
      model: Name of the model.

    Attributes:
      slices: Number of the group's slice; [groups].
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

    def measure_auc(self) -> Measured:
        """Compute the area under the ROC curve by group; NaN for groups with a single class.

        The weight of a group is the weight of its rows.

        A pair of rows with equal predictions counts half.
        """
        positives, negatives = (
            np.add.reduceat(self._weights * share, self._blocks) for share in (self._labels, 1 - self._labels)
        )
        starts = np.searchsorted(self._blocks, self._starts)
        positive, negative = (np.add.reduceat(by_block, starts) for by_block in (positives, negatives))
        above = np.cumsum(negatives) - negatives
        above -= np.repeat(above[starts], np.diff(starts, append=len(above)))
        pairs = positives * (np.repeat(negative, np.diff(starts, append=len(above))) - above - negatives / 2)
        return _ratio(np.add.reduceat(pairs, starts), positive * negative), self._sum_groups(self._weights)

    def measure_gain(self, most: int) -> Measured:
        """Compute the discounted cumulated gain of a group's first rows, relative to the best possible gain.

        Args:
          most: Number of rows.
        """
        discounts = np.where(self._ranks <= most, 1 / np.log2(1.0 + self._ranks), 0.0)
        ideal = self._labels[np.lexsort((-self._labels, self._keys))]
        gain, greatest = (self._sum_groups(labels * discounts) for labels in (self._tied_means, ideal))
        return _ratio(gain, greatest), np.ones(len(gain))

    def measure_recall(self, most: int) -> Measured:
        """Compute the share of a group's labels 1 that are among its first rows.

        Args:
          most: Number of rows.
        """
        return _ratio(self._count_hits(most), self._relevant), np.ones(len(self._starts))

    def measure_precision(self, most: int) -> Measured:
        """Compute the number of labels 1 among the first rows, divided by `most`; NaN for groups without a label 1.

        Args:
          most: Number of rows.
        """
        shares = np.where(self._relevant > 0, self._count_hits(most) / most, np.nan)
        return shares, np.ones(len(self._starts))

    def measure_reciprocal_rank(self, most: int | None) -> Measured:
        """Compute 1 / rank of the first row with a label above 0; 0 if the rank exceeds `most`.

        Args:
          most: Number of rows; None for all rows.
        """
        relevant = np.add.reduceat((self._labels > 0).astype(np.int64), self._blocks)
        block_groups: Ints = np.asarray(np.searchsorted(self._starts, self._blocks, side="right")) - 1
        candidates = np.flatnonzero(relevant)
        blocks = candidates[np.diff(block_groups[candidates], prepend=-1) != 0]
        groups = block_groups[blocks]
        # If m of n tied rows are relevant, the first relevant row is number j in C(n - j, m - 1) of C(n, m)
        # orders.
        sizes, count = self._block_sizes[blocks], relevant[blocks]
        block = np.repeat(np.arange(len(blocks)), sizes)
        number = np.arange(len(block)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
        n, m = sizes[block], count[block]
        possible = number <= n - m + 1
        block, number, n, m = block[possible], number[possible], n[possible], m[possible]
        probability = np.exp(_log_choose(n - number, m - 1) - _log_choose(n, m))
        ranks = self._ranks[self._blocks[blocks]][block] + number - 1
        terms = probability / ranks if most is None else np.where(ranks <= most, probability / ranks, 0.0)
        values = np.full(len(self._starts), np.nan)
        values[groups] = np.bincount(block, terms, len(blocks))
        return values, np.ones(len(values))

    def measure_item_recall(self, most: int) -> Measured:
        """Compute the share of a group's interactions whose item a retrieval ranks among the first.

        The predictions are the ranks of the rows' items among all items, 0 for a miss; rows with label 1 are
        interactions. As in most libraries, the divisor is the number of interactions, even if it exceeds `most`.

        Args:
          most: Number of items.
        """
        hits = (self._scores > 0) & (self._scores <= most)
        return _ratio(self._sum_groups(self._labels * hits), self._relevant), np.ones(len(self._starts))

    def measure_item_gain(self, most: int) -> Measured:
        """Compute the discounted cumulated gain of a group's items in a retrieval, relative to the best gain.

        The gain is best if the first ranks are the items of the group's interactions. An interaction counts at best
        with its position among the group's interactions: several interactions may share a rank if they have the
        same item or different queries, and the ratio could exceed 1.

        Args:
          most: Number of items; see `measure_item_recall` for predictions and labels.
        """
        ranks = np.where(self._scores > 0, self._scores, np.inf)
        order = np.lexsort((ranks, self._labels == 0, self._keys))
        labels, ranks = self._labels[order], np.maximum(ranks[order], self._ranks)
        gain, greatest = (
            self._sum_groups(labels * np.where(positions <= most, 1 / np.log2(1.0 + positions), 0.0))
            for positions in (ranks, self._ranks)
        )
        return _ratio(gain, greatest), np.ones(len(gain))

    @cached_property
    def _tied_means(self) -> Floats:
        """The mean label of the rows that are tied with a row; [rows]."""
        return np.repeat(np.add.reduceat(self._labels, self._blocks) / self._block_sizes, self._block_sizes)

    @cached_property
    def _relevant(self) -> Floats:
        return self._sum_groups(self._labels)

    def _count_hits(self, most: int) -> Floats:
        return self._sum_groups(np.where(self._ranks <= most, self._tied_means, 0.0))

    def _sum_groups(self, values: Floats) -> Floats:
        sums: Floats = np.add.reduceat(values, self._starts)
        return sums


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


def _log_choose(n: Ints, k: Ints) -> Floats:
    logarithm: Floats = special.gammaln(n + 1.0) - special.gammaln(k + 1.0) - special.gammaln(n - k + 1.0)
    return logarithm
