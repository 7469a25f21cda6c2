"""Describes ExampleGen."""

from components.node import Node

NODES = (Node("ExampleGen", outputs=("examples",)),)
