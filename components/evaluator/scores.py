"""The rows of a binary task by prediction, which determine areas, ranks and their intervals.

The results are exact as long as a slice has at most 131,072 distinct predictions, fewer with more than 8 slices: every
distinct prediction has a separate bin. Beyond that, neighbouring predictions share a bin and count as equal; see
`ordered_bins`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma

from components.compat import tfma as compat
from components.evaluator import ordered_bins
from components.evaluator.binning import Binned, Floats, Ints, Numbers, Sums, finite, probabilities
from components.evaluator.columnar_metric import WeightedSums, identity, make_computation, make_weighted_sums
from components.evaluator.intervals import ScoreBins

Computations = list[tfma.metrics.MetricComputation]


def score_computations(
    eval_config: tfma.EvalConfig | None, key_fields: Mapping[str, Any]
) -> tuple[Computations, Callable[[Mapping[Any, Any]], ScoreBins]]:
    """Return the computations of the rows by prediction, and a function that selects them among a slice's results.

    Args:
      eval_config: TFMA's config.
      key_fields: See KeyedMetric.
    """
    computations, select_sums = make_weighted_sums("scores", eval_config, key_fields, _bins, ordered=True)
    return computations, lambda results: score_bins(select_sums(results))


def row_counts(
    eval_config: tfma.EvalConfig | None, key_fields: Mapping[str, Any]
) -> tuple[Computations, Callable[[Mapping[Any, Any]], Floats]]:
    """Return the computations, and the function, that count rows without weights in `score_computations`' bins."""
    key = tfma.metrics.MetricKey(name=compat.private("scores by rows"), **key_fields)

    def counts(results: Mapping[Any, Any]) -> Floats:
        rows: Floats = results[key].rows
        return rows[rows > 0]

    return [make_computation(key, eval_config, _bins, identity, power=0, ordered=True)], counts


def score_bins(weighted: WeightedSums) -> ScoreBins:
    """Return the bins that have rows, in ascending order of the predictions."""
    # All rows of a bin may have the weight 0.
    sums, squared = weighted.select(weighted.sums.rows > 0)
    by_squares = None if squared is sums else ScoreBins(*_columns(squared))
    return ScoreBins(*_columns(sums), by_squares, sums.bins)


def roc_area(bins: ScoreBins) -> float:
    """Compute the area under the ROC curve; NaN without rows of both classes.

    The area is the share of pairs of rows with the labels 1 and 0 that the predictions order correctly. A pair with
    equal predictions counts half.
    """
    positives, negatives = bins.labels, bins.rows - bins.labels
    pairs = float(positives.sum()) * float(negatives.sum())
    return float((positives * (np.cumsum(negatives) - negatives / 2)).sum() / pairs) if pairs else float("nan")


def average_precision(bins: ScoreBins) -> float:
    """Compute the sum over the distinct predictions of precision * increase of recall; NaN without label 1."""
    positives, rows = bins.labels[::-1], bins.rows[::-1]
    total = float(positives.sum())
    return float((positives * np.cumsum(positives) / np.cumsum(rows)).sum() / total) if total else float("nan")


def error_bounds(bins: ScoreBins) -> tuple[float, float]:
    """Return bounds of the errors of the area and of the average precision that result from shared bins.

    If a bin has different predictions, the order of its rows is unknown. In the area a pair of such rows counts half
    instead of 0 or 1. In the average precision, the rows with label 1 may precede or follow the other rows of the bin.
    Both bounds are 0 if every bin has a single prediction.
    """
    mixed = (ordered_bins.levels_of(bins.bins) > 0)[::-1]
    positives, rows = bins.labels[::-1], bins.rows[::-1]
    negatives = rows - positives
    pairs = float(positives.sum()) * float(negatives.sum())
    if not mixed.any() or not pairs:
        return 0.0, 0.0
    hits, misses = np.cumsum(positives), np.cumsum(negatives)
    with np.errstate(invalid="ignore", divide="ignore"):
        best = hits / (hits + misses - negatives)
        worst = (hits - positives) / (hits - positives + misses)
    width = np.where(positives * negatives > 0, positives * (np.nan_to_num(best) - np.nan_to_num(worst)), 0.0)
    return float((positives * negatives)[mixed].sum() / 2 / pairs), float(width[mixed].sum() / positives.sum())


def _columns(sums: Sums) -> tuple[Floats, Floats, Floats]:
    labels, predictions = sums.sums.T if len(sums.rows) else (np.empty(0), np.empty(0))
    return sums.rows, labels, predictions


def _bins(labels: Numbers, predictions: Numbers) -> Binned:
    labels, predictions = probabilities(labels), finite(predictions)
    bins: Ints = ordered_bins.bins_of(predictions)
    return bins, np.stack([labels, predictions], axis=1)
