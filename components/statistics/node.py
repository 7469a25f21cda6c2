"""Describes StatisticsGen."""

from components.node import Node

NODES = (Node("StatisticsGen", outputs=("statistics",), upstream=("ExampleGen",)),)
