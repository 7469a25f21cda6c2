"""The crossentropy of a multiclass task, defined also for classes that the training split does not have."""

from __future__ import annotations

import numpy as np

from components.base.errors import InputError
from components.compat.tfma.columnar import LEAST_PROBABILITY, Floats, Numbers
from components.evaluator.columnar_metric import MeanMetric

_GREATEST = 1.001
"""A softmax in half precision may exceed 1 by this much."""


class MulticlassCrossentropy(MeanMetric):
    """The mean of -ln(probability of the label's class).

    A label outside of [0, classes), as of a class that the training split does not have, counts with the smallest
    probability. tf_keras' own metric, which TFMA uses, raises an error for it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, _losses)


def of_label(labels: Numbers, predictions: Numbers) -> Floats:
    """Return the probability of each label's class; 0 for a class that the model does not have.

    Args:
      labels: class numbers; [rows].
      predictions: probabilities; [rows, classes].
    """
    classes = labels.astype(np.int64)
    known = (classes >= 0) & (classes < predictions.shape[1])
    found = predictions[np.arange(len(classes)), np.where(known, classes, 0)].astype(np.float64)
    return np.where(known, found, 0.0)


def _losses(labels: Numbers, predictions: Numbers) -> Floats:
    if (predictions < 0).any() or (predictions > _GREATEST).any():
        # Models of own code may return logits, for which other metrics are defined.
        raise InputError(
            f"crossentropy: expected probabilities, received predictions from {predictions.min():.3g} to "
            f"{predictions.max():.3g}",
            "return probabilities from serving_default, or set evaluation.metrics to others, such as [accuracy]",
        )
    losses: Floats = -np.log(np.maximum(of_label(labels, predictions), LEAST_PROBABILITY))
    return losses
