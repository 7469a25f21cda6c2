"""The crossentropy of a multiclass task, defined also for classes that the training split does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma

from components.compat import tfma as compat
from components.compat.tfma.columnar import Binned, Floats, Numbers, Sums, in_one_bin
from components.errors import InputError
from components.evaluator import intervals
from components.evaluator.columnar_metric import combined
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.plot_metrics import bounded

_LEAST = 1e-7
"""Smallest probability, as in tf_keras; also the probability of a class that the model does not have."""
_GREATEST = 1.001
"""A softmax in half precision may exceed 1 by this much."""


class MulticlassCrossentropy(KeyedMetric):
    """The mean of -ln(probability of the label's class).

    A label outside of [0, classes), as of a class that the training split does not have, counts with the smallest
    probability. tf_keras' own metric, which TFMA uses, raises an error for it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, _computations)


def of_label(labels: Numbers, predictions: Numbers) -> Floats:
    """Returns the probability of each label's class; 0 for a class that the model does not have.

    Args:
      labels: class numbers; [rows].
      predictions: probabilities; [rows, classes].
    """
    classes = labels.astype(np.int64)
    known = (classes >= 0) & (classes < predictions.shape[1])
    found = predictions[np.arange(len(classes)), np.where(known, classes, 0)].astype(np.float64)
    return np.where(known, found, 0.0)


def _computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
    key, total_key = (
        tfma.metrics.MetricKey(name=each, **key_fields) for each in (name, compat.private(f"total_{name}"))
    )

    def derived(results: Mapping[Any, Any]) -> dict[Any, Any]:
        return {key: results[total_key][0]}

    def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
        value, squares, rows = results[total_key]
        return {key: bounded(value, intervals.of_mean(value, squares, rows))}

    return [
        combined(total_key, eval_config, _losses, _means),
        tfma.metrics.DerivedMetricComputation([key], derived),
        compat.interval_computation(key, bounds),
    ]


def _losses(labels: Numbers, predictions: Numbers) -> Binned:
    if (predictions < 0).any() or (predictions > _GREATEST).any():
        # Models of own code may return logits, for which other metrics are defined.
        raise InputError(
            f"crossentropy: expected probabilities, received predictions from {predictions.min():.3g} to "
            f"{predictions.max():.3g}",
            "return probabilities from serving_default, or set evaluation.metrics to others, such as [accuracy]",
        )
    loss = -np.log(np.maximum(of_label(labels, predictions), _LEAST))
    return in_one_bin(loss, np.square(loss))


def _means(sums: Sums) -> tuple[float, float, float]:
    """Returns the mean loss, the mean squared loss and the number of rows; NaN without rows."""
    rows, totals = sums.total()
    loss, square = (totals / rows).tolist() if rows else (float("nan"), float("nan"))
    return loss, square, rows
