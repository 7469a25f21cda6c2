"""Describes BaseModel, which looks up the model of a warm start, and Trainer."""

from __future__ import annotations

from typing import Any

from components.base.node import Node

NODES = (
    Node("BaseModel", outputs=("model",), only_looks_up=True),
    Node(
        "Trainer",
        outputs=("model", "model_run"),
        upstream=("StatisticsGen", "SchemaGen", "Transform", "Tuner", "BaseModel"),
    ),
)


def list_code(config: Any) -> tuple[str, ...]:
    """Return the modules and packages whose code the Trainer runs, and the files that it reads, for its cache key.

    Args:
      config: The whole config.
    """
    return (
        *("components.features", "components.models", "components.trainer", "components.data.skew_sample"),
        *config.features.list_code(),
        *config.model.list_code(),
    )
