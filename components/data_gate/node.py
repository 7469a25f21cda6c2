"""Descriptors of the nodes SchemaGen, ExampleValidator and DataGate."""

from components.base.node import Node

NODES = (
    Node("SchemaGen", outputs=("schema",), upstream=("StatisticsGen",)),
    Node("ExampleValidator", outputs=("anomalies",), upstream=("StatisticsGen", "SchemaGen")),
    Node("DataGate", outputs=("report",), upstream=("StatisticsGen", "ExampleValidator")),
)
