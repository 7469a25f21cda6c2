"""Describes StatisticsGen."""

from components.base.node import Node

NODES = (Node("StatisticsGen", outputs=("statistics",), upstream=("ExampleGen",)),)
