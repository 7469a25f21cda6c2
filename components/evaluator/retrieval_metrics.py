"""Metrics of a retrieval: the rank of an interaction's item among all items, and the items that are recommended.

Rows with label 0 are ignored. An item that is not in the model's index has rank 0 and always counts as a miss.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from components.evaluator import intervals
from components.evaluator.binning import DROPPED, Binned, Floats, Numbers, Sums
from components.evaluator.columnar_metric import ColumnarMetric, MeanMetric
from components.results.retrieval_outputs import INDEX_SIZE, INTERACTIONS, RECOMMENDED

RankMeasure = Callable[[Floats], Floats]
"""Ranks, at least 1, and infinite for a miss → a value in [0, 1]; [rows]."""


def make_recall(most: int) -> RankMeasure:
    """Return the measure that is 1 for a rank of at most `most`: the recall, or hit rate, of one item per row."""
    return lambda ranks: (ranks <= most).astype(np.float64)


def make_gain(most: int) -> RankMeasure:
    """Return the measure 1 / log2(1 + rank), 0 beyond `most`: the NDCG of one item per row; see `ranking`."""
    return lambda ranks: np.where(ranks <= most, 1 / np.log2(1 + ranks), 0.0)


def make_reciprocal(most: float = math.inf) -> RankMeasure:
    """Return the measure 1 / rank, 0 beyond `most`."""
    return lambda ranks: np.where(ranks <= most, 1 / ranks, 0.0)


def measure_interactions(measure: RankMeasure, labels: Numbers, ranks: Numbers) -> Floats:
    """Measure the ranks of rows with label 1; NaN for other rows.

    Args:
      measure: The measure.
      labels: 0 or 1; [rows].
      ranks: Whole numbers, 0 for a miss; NaN if the model does not output ranks; [rows].
    """
    ranks = ranks.astype(np.float64)
    values = measure(np.where(ranks == 0, np.inf, ranks))
    return np.where((labels > 0) & ~np.isnan(ranks), values, np.nan)


class ItemRecall(MeanMetric):
    """The share of interactions whose item is among the first `rows` of all items."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(
            name,
            lambda labels, ranks: measure_interactions(make_recall(rows), labels, ranks),
            intervals.compute_weighted_rate_interval,
        )


class ItemDiscountedGain(MeanMetric):
    """The mean of `make_gain` (NDCG)."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, lambda labels, ranks: measure_interactions(make_gain(rows), labels, ranks))


class ItemReciprocalRank(MeanMetric):
    """The mean of `make_reciprocal` (MRR)."""

    def __init__(self, name: str, rows: float = math.inf) -> None:
        super().__init__(name, lambda labels, ranks: measure_interactions(make_reciprocal(rows), labels, ranks))


class CatalogueCoverage(ColumnarMetric):
    """The share of all items that are among the first `rows` recommendations for at least one interaction.

    Source: M. Ge, C. Delgado-Battenfeld and D. Jannach, Beyond accuracy: evaluating recommender systems by coverage and
    serendipity, RecSys 2010.
    """

    def __init__(self, name: str, rows: int) -> None:
        def bins(labels: Numbers, predictions: Numbers) -> Binned:
            if predictions.ndim < 2:
                # The model does not output recommendations.
                return np.full(len(labels), DROPPED), np.zeros((len(labels), 1))
            items, size = predictions[:, :-1][:, :rows], predictions[:, -1:]
            # 0 fills the list if the user has seen all remaining items.
            counted = (labels[:, np.newaxis] > 0) & (items > 0)
            return np.where(counted, items, DROPPED), size.astype(np.float64)

        super().__init__(name, bins, _compute_coverage, output=f"{RECOMMENDED},{INDEX_SIZE}")


class RecommendedPopularity(MeanMetric):
    """The mean number of interactions in the training split of the first `rows` recommended items.

    Source: H. Yin, B. Cui, J. Li, J. Yao and C. Chen, Challenging the long tail recommendation, PVLDB 5, 2012.
    """

    def __init__(self, name: str, rows: int) -> None:
        def means(labels: Numbers, interactions: Numbers) -> Floats:
            counts = interactions.reshape(len(labels), -1)[:, :rows].astype(np.float64)
            # -1 fills the list if the user has seen all remaining items.
            recommended = counts >= 0
            with np.errstate(invalid="ignore"):
                row_means = np.where(recommended, counts, 0).sum(axis=1) / recommended.sum(axis=1)
            return np.where(labels > 0, row_means, np.nan)

        super().__init__(name, means, output=INTERACTIONS)


def _compute_coverage(sums: Sums) -> float:
    counted = sums.bins != DROPPED
    rows, (sizes,) = sums.total() if counted.any() else (0.0, (0.0,))
    # Recommendations for rows with weight 0 do not count.
    return float((sums.rows[counted] > 0).sum() * rows / sizes) if sizes else math.nan
