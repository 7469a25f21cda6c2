"""Metrics of a retrieval: where the item of an interaction is among all items, and which items are recommended.

Rows with label 0 do not count. An item that is not in the model's index has rank 0 and is a miss, however many items
count.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from components.compat.tfma.columnar import DROPPED, Binned, Floats, Numbers, Sums
from components.evaluator import intervals
from components.evaluator.columnar_metric import ColumnarMetric, MeanMetric
from components.results.retrieval_outputs import INDEX_SIZE, INTERACTIONS, RECOMMENDED

RankMeasure = Callable[[Floats], Floats]
"""Ranks, from 1 on, and infinite for a miss → a value in [0, 1]; [rows]."""


def recall(most: int) -> RankMeasure:
    """1 for a rank of at most `most`: with one item in a row, its recall, or hit rate."""
    return lambda ranks: (ranks <= most).astype(np.float64)


def discounted_gain(most: int) -> RankMeasure:
    """1 / log2(1 + rank), 0 beyond `most`; see `ranking` for sources. With one item the greatest possible gain is 1."""
    return lambda ranks: np.where(ranks <= most, 1 / np.log2(1 + ranks), 0.0)


def reciprocal(most: float = math.inf) -> RankMeasure:
    """1 / rank; 0 beyond `most`."""
    return lambda ranks: np.where(ranks <= most, 1 / ranks, 0.0)


def of_interactions(measure: RankMeasure, labels: Numbers, ranks: Numbers) -> Floats:
    """Measures the ranks of rows with label 1; NaN for other rows.

    Args:
      measure: the measure.
      labels: 0 or 1; [rows].
      ranks: whole numbers, 0 for a miss; NaN if a model has none; [rows].
    """
    ranks = ranks.astype(np.float64)
    found = measure(np.where(ranks == 0, np.inf, ranks))
    return np.where((labels > 0) & ~np.isnan(ranks), found, np.nan)


class ItemRecall(MeanMetric):
    """The share of interactions whose item is among the first `rows` of all items."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(
            name,
            lambda labels, ranks: of_interactions(recall(rows), labels, ranks),
            intervals.of_weighted_rate,
        )


class ItemDiscountedGain(MeanMetric):
    """The mean of `discounted_gain` (NDCG)."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, lambda labels, ranks: of_interactions(discounted_gain(rows), labels, ranks))


class ItemReciprocalRank(MeanMetric):
    """The mean of `reciprocal` (MRR)."""

    def __init__(self, name: str, rows: float = math.inf) -> None:
        super().__init__(name, lambda labels, ranks: of_interactions(reciprocal(rows), labels, ranks))


class CatalogueCoverage(ColumnarMetric):
    """The share of all items that are among the first `rows` for some interaction's query.

    Source: M. Ge, C. Delgado-Battenfeld and D. Jannach, Beyond accuracy: evaluating recommender systems by coverage and
    serendipity, RecSys 2010.
    """

    def __init__(self, name: str, rows: int) -> None:
        def bins(labels: Numbers, predictions: Numbers) -> Binned:
            if predictions.ndim < 2:
                # A model without recommendations.
                return np.full(len(labels), DROPPED), np.zeros((len(labels), 1))
            items, size = predictions[:, :-1][:, :rows], predictions[:, -1:]
            # 0 stands for no item: the user has seen all others.
            counted = (labels[:, np.newaxis] > 0) & (items > 0)
            return np.where(counted, items, DROPPED), size.astype(np.float64)

        super().__init__(name, bins, _coverage, output=f"{RECOMMENDED},{INDEX_SIZE}")


class RecommendedPopularity(MeanMetric):
    """The mean number of interactions in the training split of the first `rows` recommended items.

    Source: H. Yin, B. Cui, J. Li, J. Yao and C. Chen, Challenging the long tail recommendation, PVLDB 5, 2012.
    """

    def __init__(self, name: str, rows: int) -> None:
        def means(labels: Numbers, interactions: Numbers) -> Floats:
            counts = interactions.reshape(len(labels), -1)[:, :rows].astype(np.float64)
            # -1 stands for no item: the user has seen all others.
            recommended = counts >= 0
            with np.errstate(invalid="ignore"):
                found = np.where(recommended, counts, 0).sum(axis=1) / recommended.sum(axis=1)
            return np.where(labels > 0, found, np.nan)

        super().__init__(name, means, output=INTERACTIONS)


def _coverage(sums: Sums) -> float:
    counted = sums.bins != DROPPED
    rows, (sizes,) = sums.total() if counted.any() else (0.0, (0.0,))
    # A row of weight 0 recommends nothing.
    return float((sums.rows[counted] > 0).sum() * rows / sizes) if sizes else math.nan
