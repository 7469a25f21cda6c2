"""Describes InfraValidator."""

from components.node import Node

NODES = (Node("InfraValidator", outputs=("blessing",), upstream=("ExampleGen", "Trainer")),)
