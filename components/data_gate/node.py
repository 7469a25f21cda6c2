"""Describes SchemaGen, ExampleValidator and DataGate."""

from components.node import Node

NODES = (
    Node("SchemaGen", outputs=("schema",), upstream=("StatisticsGen",)),
    Node("ExampleValidator", outputs=("anomalies",), upstream=("StatisticsGen", "SchemaGen")),
    Node("DataGate", outputs=("report",), upstream=("StatisticsGen", "ExampleValidator")),
)
