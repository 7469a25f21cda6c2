"""Describes BaseModel, which looks up the model of a warm start, and Trainer."""

from components.base.node import Node

NODES = (
    Node("BaseModel", outputs=("model",), only_looks_up=True),
    Node(
        "Trainer",
        outputs=("model", "model_run"),
        upstream=("StatisticsGen", "SchemaGen", "Transform", "Tuner", "BaseModel"),
    ),
)
