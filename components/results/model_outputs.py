"""Names of the predictions among the outputs of an exported model."""

from __future__ import annotations

from components.base.config_section import Task
from components.results.retrieval_outputs import RANK

PREDICTION_KEY: dict[Task, str] = {
    "binary": "probability",
    "multiclass": "probabilities",
    "regression": "prediction",
    "retrieval": RANK,
}
"""Task → name of the output that is the prediction."""
