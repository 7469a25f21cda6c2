"""The class of `bias`, a function of sums over the rows. It is computed from arrays."""

from __future__ import annotations

from components.evaluator.binning import in_one_bin, mean
from components.evaluator.columnar_metric import ColumnarMetric


class MeanBias(ColumnarMetric):
    """The mean of prediction - label."""

    def __init__(self, name: str) -> None:
        super().__init__(name, lambda labels, predictions: in_one_bin(predictions - labels), mean)
