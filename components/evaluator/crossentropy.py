"""The crossentropy of a multiclass task, which is also defined for classes that the training split lacks."""

from __future__ import annotations

import numpy as np

from components.base.errors import InputError
from components.evaluator.binning import LEAST_PROBABILITY, Floats, Numbers
from components.evaluator.columnar_metric import MeanMetric

_GREATEST = 1.001
"""Maximum probability, which a softmax in half precision may reach by rounding."""


class MulticlassCrossentropy(MeanMetric):
    """The mean of -ln(probability of the label's class).

    A label outside [0, classes), such as a class that the training split lacks, counts with the smallest probability.
    The metric of tf_keras, which TFMA uses, raises an error for such labels.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, _losses)


def select_label_probabilities(labels: Numbers, predictions: Numbers) -> Floats:
    """Return the predicted probability of the labels, [rows]; 0 for a class that the model does not know.

    Args:
      labels: Class numbers; [rows].
      predictions: Probabilities; [rows, classes].
    """
    classes = labels.astype(np.int64)
    known = (classes >= 0) & (classes < predictions.shape[1])
    probabilities = predictions[np.arange(len(classes)), np.where(known, classes, 0)].astype(np.float64)
    return np.where(known, probabilities, 0.0)


def _losses(labels: Numbers, predictions: Numbers) -> Floats:
    if (predictions < 0).any() or (predictions > _GREATEST).any():
        # Models of own code may return logits, for which accuracy is defined.
        raise InputError(
            f"crossentropy: expected probabilities, received predictions from {predictions.min():.3g} to "
            f"{predictions.max():.3g}",
            "return probabilities from serving_default, or set evaluation.metrics to others, such as [accuracy]",
        )
    losses: Floats = -np.log(np.maximum(select_label_probabilities(labels, predictions), LEAST_PROBABILITY))
    return losses
