"""The class of `bias`, which is computed from arrays, with a confidence interval."""

from __future__ import annotations

from components.evaluator.columnar_metric import MeanMetric


class MeanBias(MeanMetric):
    """The mean of prediction - label."""

    def __init__(self, name: str) -> None:
        super().__init__(name, lambda labels, predictions: predictions - labels)
