"""Metrics of the retrieval task are computed from ranks and from the recommended items."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

from components.evaluator import binned_sums, binning, intervals
from components.evaluator.binned_sums import Counted, Slices
from components.evaluator.config import metric
from components.evaluator.retrieval_metrics import (
    CatalogueCoverage,
    ItemDiscountedGain,
    ItemRecall,
    ItemReciprocalRank,
    RecommendedPopularity,
)
from components.evaluator.saved_model import Evaluated
from tests.support.data.tolerances import float64_sum

RANDOM = np.random.default_rng(7)
ITEMS, ROWS = 40, 60
MEAN = float64_sum(ROWS)
"""Tolerance of means over the rows."""
SCORES = RANDOM.normal(size=(ROWS, ITEMS))
OWN = RANDOM.integers(0, ITEMS, ROWS)
LABELS = (RANDOM.random(ROWS) < 0.6).astype(np.int64)
RANKS = (np.take_along_axis(SCORES, OWN[:, None], 1) <= SCORES).sum(axis=1)
TRUE, CLICKED = np.eye(ITEMS)[OWN], LABELS == 1


def value(item_metric: Any, labels: Any, predictions: Any, weights: Any = None, parts: int = 3) -> Any:
    """Return the first result of a metric, computed from several parts of the rows."""
    combiner = item_metric.computations(example_weighted=False)[0].combiner
    counted = []
    for rows in np.array_split(np.arange(len(labels)), parts):
        slices = Slices([()], np.arange(len(rows)), np.zeros(len(rows), np.int64))
        binned = combiner.bins(labels[rows], predictions[rows])
        counted.append(Counted([()], [binned_sums.count(binned, slices, None if weights is None else weights[rows])]))
    _, [table] = binned_sums.merge(counted)
    ((_, result),) = combiner.result(table.select_slice(0)).items()
    return result


def mean(item_metric: Any, labels: Any, predictions: Any, **options: Any) -> float:
    return binning.mean(value(item_metric, labels, predictions, **options))


def test_metrics_of_rows_with_a_single_item_equal_scikit_learns() -> None:
    gain = ndcg_score(TRUE[CLICKED], SCORES[CLICKED], k=10)
    assert mean(ItemDiscountedGain("x", 10), LABELS, RANKS) == MEAN.approx(gain)
    average = label_ranking_average_precision_score(TRUE[CLICKED].astype(int), SCORES[CLICKED])
    assert mean(ItemReciprocalRank("x"), LABELS, RANKS) == MEAN.approx(average)
    first = np.argsort(-SCORES[CLICKED])[:, :10]
    share = (first == OWN[CLICKED][:, None]).any(axis=1).mean()
    assert mean(ItemRecall("x", 10), LABELS, RANKS) == MEAN.approx(share)


def test_item_that_is_not_in_the_index_is_a_miss() -> None:
    labels, ranks = np.array([1, 1, 0]), np.array([0, 2, 1])
    for item_metric, expected in (
        (ItemRecall("x", 1_000_000), 0.5),
        (ItemReciprocalRank("x"), 0.25),
        (ItemReciprocalRank("x", 1), 0.0),
        (ItemDiscountedGain("x", 5), 0.5 / math.log2(3)),
    ):
        assert mean(item_metric, labels, ranks) == MEAN.approx(expected)


def test_rows_are_weighted() -> None:
    weights = np.array([3.0, 1.0, 5.0])
    assert mean(ItemRecall("x", 1), np.array([1, 1, 0]), np.array([1, 2, 1]), weights=weights) == 0.75


@pytest.mark.parametrize("item_metric", [ItemRecall("x", 3), ItemReciprocalRank("x"), ItemDiscountedGain("x", 3)])
def test_metric_without_interactions_or_ranks_is_nan(item_metric: Any) -> None:
    assert math.isnan(mean(item_metric, np.zeros(4, int), np.ones(4, int)))
    assert math.isnan(mean(item_metric, np.ones(4, int), np.full(4, np.nan)))


def test_interval_of_recall_is_the_interval_of_a_rate() -> None:
    counted, derived, interval = ItemRecall("x", 10).computations(example_weighted=False)
    results = {counted.keys[0]: value(ItemRecall("x", 10), LABELS, RANKS)}
    [share] = derived.result(results).values()
    [bounds] = interval.result(results).values()
    low, high = intervals.compute_rate_interval(share, int(CLICKED.sum())) or (0, 0)
    assert (bounds.lower_bound.value, bounds.upper_bound.value) == MEAN.approx((low, high))


def test_coverage_counts_each_recommended_item_once() -> None:
    recommended = RANDOM.integers(1, 31, (ROWS, 5))
    sizes = np.full((ROWS, 1), ITEMS)
    evaluated = Evaluated(LABELS, RANKS, {}, {"recommended": recommended, "index_size": sizes})
    coverage = CatalogueCoverage("x", 3)
    read = evaluated.output(coverage.computations(example_weighted=False)[0].combiner.output)
    distinct = len(np.unique(recommended[CLICKED][:, :3]))
    assert value(coverage, LABELS, read) == MEAN.approx(distinct / ITEMS)
    assert value(coverage, LABELS, read, weights=np.full(ROWS, 0.5)) == MEAN.approx(distinct / ITEMS)
    assert math.isnan(value(coverage, LABELS, Evaluated(LABELS, RANKS, {}, {}).output("recommended,index_size")))


def test_popularity_is_the_mean_number_of_interactions() -> None:
    interactions = RANDOM.integers(1, 100, (ROWS, 5))
    popularity = mean(RecommendedPopularity("x", 3), LABELS, interactions)
    assert popularity == MEAN.approx(interactions[CLICKED][:, :3].mean())
    assert math.isnan(mean(RecommendedPopularity("x", 3), LABELS, np.full(ROWS, np.nan)))


def test_meaning_of_a_metric_name_depends_on_the_task() -> None:
    assert metric("recall_at_10", "retrieval").tfma_class == "ItemRecall"
    assert metric("recall_at_10", "binary").tfma_class == "RecallOfTop"
    assert metric("mrr", "retrieval").tfma_class == "ItemReciprocalRank"
    assert metric("mrr").grouped
    assert metric("auc", "retrieval").tasks == {"binary", "anomaly"}
    with pytest.raises(ValueError, match="unknown metric 'coverag_at_10'; did you mean 'coverage_at_10'"):
        metric("coverag_at_10")


def test_user_who_has_seen_nearly_all_items_gets_fewer_recommendations() -> None:
    labels = np.array([1, 1, 0])
    # 0 and -1 are padding; the last column is the size of the index.
    recommended = np.array([[2, 0, 10], [1, 3, 10], [4, 5, 10]])
    assert value(CatalogueCoverage("x", 2), labels, recommended) == MEAN.approx(3 / 10)
    interactions = np.array([[8, -1], [5, 3], [9, 9]])
    assert mean(RecommendedPopularity("x", 2), labels, interactions) == MEAN.approx((8 + 4) / 2)
