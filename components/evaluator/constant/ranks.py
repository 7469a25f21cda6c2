"""The comparison of a retrieval with ranking the items by popularity."""

from __future__ import annotations

import numpy as np

from components.evaluator.binning import Binned, Numbers, Sums, in_one_bin
from components.evaluator.columnar_metric import WeightedSums
from components.evaluator.constant.paired import Compared, Difference, compare_pairs
from components.evaluator.retrieval_metrics import make_gain, make_recall, make_reciprocal, measure_interactions

MEASURES = {"recall_at_10": make_recall(10), "ndcg_at_10": make_gain(10), "mrr": make_reciprocal()}


def retrieval_bins(labels: Numbers, predictions: Numbers) -> Binned:
    """Return the sums of the measures by popularity rank, and of the model's gain over them, in one bin."""
    ranks = predictions.reshape(len(labels), -1)
    summands = []
    for measure in MEASURES.values():
        by_model, by_popularity = (measure_interactions(measure, labels, ranks[:, at]) for at in (0, -1))
        gain = by_model - by_popularity
        summands += [by_popularity, gain, np.square(gain)]
    return in_one_bin(*summands)


def compare_retrieval(weighted: WeightedSums) -> dict[str, Compared]:
    """Compare with ranking the items by their interactions in the training split, in the same order for all queries."""
    rows, totals = weighted.sums.total()
    if not rows:
        return {}
    comparisons = {}
    for number, name in enumerate(MEASURES):

        def difference(sums: Sums, first: int = 3 * number) -> Difference:
            rows, totals = sums.total()
            return rows, float(totals[first + 1]), float(totals[first + 2])

        comparisons[name] = compare_pairs(float(totals[3 * number]) / rows, difference, weighted)
    return comparisons
