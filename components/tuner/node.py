"""Describes Tuner."""

from components.base.node import Node

NODES = (Node("Tuner", outputs=("best_hyperparameters", "tuner_results"), upstream=("SchemaGen", "Transform")),)
