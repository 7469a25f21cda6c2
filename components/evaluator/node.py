"""Describes LatestBlessedModel and Evaluator."""

from components.base.node import Node

NODES = (
    Node("LatestBlessedModel", outputs=("model",), upstream=("Trainer",), only_looks_up=True),
    Node("Evaluator", outputs=("evaluation", "blessing"), upstream=("ExampleGen", "Trainer", "LatestBlessedModel")),
)
