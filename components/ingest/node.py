"""Describes ExampleGen."""

from components.base.node import Node

NODES = (Node("ExampleGen", outputs=("examples",)),)
