"""The comparison for retrieval: with the order of the items by popularity."""

from __future__ import annotations

import numpy as np

from components.compat.tfma.columnar import Binned, Numbers, Sums, in_one_bin
from components.evaluator.columnar_metric import WeightedSums
from components.evaluator.constant.paired import Compared, Difference, paired
from components.evaluator.retrieval_metrics import discounted_gain, of_interactions, recall, reciprocal

MEASURES = {"recall_at_10": recall(10), "ndcg_at_10": discounted_gain(10), "mrr": reciprocal()}


def retrieval_bins(labels: Numbers, predictions: Numbers) -> Binned:
    """Return the measures of the model's rank, and of the popularity rank, of each row."""
    ranks = predictions.reshape(len(labels), -1)
    summands = []
    for measure in MEASURES.values():
        own, popular = (of_interactions(measure, labels, ranks[:, at]) for at in (0, -1))
        summands += [popular, own - popular, np.square(own - popular)]
    return in_one_bin(*summands)


def compare_retrieval(weighted: WeightedSums) -> dict[str, Compared]:
    """Compare with the order of items by their interactions in the training split, the same one for all queries."""
    rows, totals = weighted.sums.total()
    if not rows:
        return {}
    found = {}
    for number, name in enumerate(MEASURES):

        def difference(of: Sums, first: int = 3 * number) -> Difference:
            rows, totals = of.total()
            return rows, float(totals[first + 1]), float(totals[first + 2])

        found[name] = paired(float(totals[3 * number]) / rows, difference, weighted)
    return found
