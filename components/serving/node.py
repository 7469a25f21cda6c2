"""Describes InfraValidator."""

from components.base.node import Node

NODES = (Node("InfraValidator", outputs=("blessing",), upstream=("ExampleGen", "Trainer")),)
