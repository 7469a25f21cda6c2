"""The mean cost of a model's decisions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.evaluator.binning import Numbers, finite, probabilities
from components.evaluator.columnar_metric import MeanMetric
from components.evaluator.plot_data import AT


class MeanCost(MeanMetric):
    """The mean cost of the rows' decisions, which are 1 if the prediction is at least the threshold.

    Args:
      name: Name of the metric.
      costs: Cost of the decision 1 for a row with label 0, and of the decision 0 for a row with label 1.
      threshold: The threshold.
    """

    # An argument called `fn` would get lost, because tf_keras removes it from the options of metrics.
    def __init__(self, name: str, costs: Sequence[float] = (1.0, 1.0), threshold: float = AT) -> None:
        fp, fn = costs
        # The threshold has the dtype of predictions, as in the other metrics of decisions.
        limit = np.float32(threshold)

        def measure(labels: Numbers, predictions: Numbers) -> Numbers:
            share = probabilities(labels)
            return np.where(finite(predictions).astype(np.float32) >= limit, fp * (1 - share), fn * share)

        super().__init__(name, measure)
