"""Describes LatestBlessedModel and Evaluator."""

from __future__ import annotations

from typing import Any

from components.base.node import Node

NODES = (
    Node("LatestBlessedModel", outputs=("model",), upstream=("Trainer",), only_looks_up=True),
    Node("Evaluator", outputs=("evaluation", "blessing"), upstream=("ExampleGen", "Trainer", "LatestBlessedModel")),
)


def list_code(config: Any) -> tuple[str, ...]:
    """Return the modules and packages whose code the Evaluator runs, for its cache key.

    Args:
      config: The whole config.
    """
    return (
        *("components.evaluator", "components.features.leakage"),
        *("components.data.saved_model", "components.data.split_sample"),
        *config.evaluation.modules(),
    )
