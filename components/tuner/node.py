"""Describes Tuner."""

from components.node import Node

NODES = (Node("Tuner", outputs=("best_hyperparameters", "tuner_results"), upstream=("SchemaGen", "Transform")),)
