"""Names of the predictions among the outputs of an exported model."""

from __future__ import annotations

from components.base.config_section import Task
from components.results.retrieval_outputs import ORDERS, RANK

PREDICTION_KEY: dict[Task, str] = {
    "binary": "probability",
    "multiclass": "probabilities",
    "regression": "prediction",
    "retrieval": RANK,
}
"""Task → name of the output that is the prediction."""

CLASS = "class"
"""Output of a binary model with `evaluation.decide`: 1 if the probability is at least the threshold, otherwise 0."""


def depends_on_rounding(output: str) -> bool:
    """Return whether an output may differ between two computations whose probabilities or scores are nearly equal.

    Args:
      output: Name of the output.
    """
    return output in ORDERS or output == CLASS or output.startswith(f"{CLASS}_")
