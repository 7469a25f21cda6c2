"""Names of the predictions among the outputs of an exported model."""

from __future__ import annotations

from components.base.config_section import Task
from components.results.retrieval_outputs import ORDERS, RANK

PREDICTION_KEY: dict[Task, str] = {
    "binary": "probability",
    "multiclass": "probabilities",
    "multilabel": "probabilities",
    "regression": "prediction",
    "survival": "prediction",
    "retrieval": RANK,
    "anomaly": "score",
}
"""Task → name of the output that is the prediction."""

CLASS = "class"
"""Output of a binary model with `evaluation.decide`: 1 if the probability is at least the threshold, otherwise 0."""


ERROR = "error"
"""Output of an anomaly model: the reconstruction error of the row, in nats."""
IS_ANOMALY = "is_anomaly"
"""Output of an anomaly model: 1 if the score is at least 1 - `model.contamination`, otherwise 0."""
PREDICTED = "predicted"
"""Output of a multilabel model: for each class, 1 if its probability is at least PREDICTED_FROM, otherwise 0."""
PREDICTED_FROM = 0.5
"""Smallest probability from which a multilabel model predicts a class."""


CUMULATIVE_HAZARD = "cumulative_hazard"
"""Output of a survival model: the cumulative hazards at TIMES, ascending; [rows, times]."""
SURVIVAL = "survival"
"""Output of a survival model: the probabilities that the event has not happened until TIMES; [rows, times]."""
TIMES = "times"
"""Output of a survival model: the ends of its intervals of time, in every row the same; [rows, times]."""


def depends_on_rounding(output: str) -> bool:
    """Return whether an output may differ between two computations whose probabilities or scores are nearly equal.

    Args:
      output: Name of the output.
    """
    return output in (*ORDERS, CLASS, PREDICTED, IS_ANOMALY) or output.startswith(f"{CLASS}_")
