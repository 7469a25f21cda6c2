"""The rows of a binary task by prediction, from which areas, ranks and their intervals are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma

from components.compat import tfma as compat
from components.compat.tfma.columnar import Binned, Floats, Numbers, Sums, finite, probabilities
from components.evaluator.columnar_metric import WeightedSums, weighted_sums
from components.evaluator.intervals import ScoreBins


def score_computations(
    eval_config: tfma.EvalConfig | None, key_fields: Mapping[str, Any]
) -> tuple[list[tfma.metrics.MetricComputation], Callable[[Mapping[Any, Any]], ScoreBins]]:
    """Return the computations of the rows by prediction, and a function of the results of a slice that returns them.

    Args:
      eval_config: TFMA's config.
      key_fields: See KeyedMetric.
    """
    computations, of_results = weighted_sums("scores", eval_config, key_fields, _bins)
    return computations, lambda results: score_bins(of_results(results))


def score_bins(weighted: WeightedSums) -> ScoreBins:
    """Return the bins that have rows, in ascending order of the predictions."""
    # All rows of a bin may have the weight 0.
    sums, squared = weighted.select(weighted.sums.rows > 0)
    return ScoreBins(*_columns(sums), None if squared is sums else ScoreBins(*_columns(squared)))


def _columns(sums: Sums) -> tuple[Floats, Floats, Floats]:
    labels, predictions = sums.sums.T if len(sums.rows) else (np.empty(0), np.empty(0))
    return sums.rows, labels, predictions


def _bins(labels: Numbers, predictions: Numbers) -> Binned:
    labels, predictions = probabilities(labels), finite(predictions)
    bins = np.clip(predictions * compat.HISTOGRAM_BUCKETS + 1, 0, compat.HISTOGRAM_BUCKETS + 1)
    return bins.astype(np.int64), np.stack([labels, predictions], axis=1)
