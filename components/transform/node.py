"""Describes Transform."""

from components.base.node import Node

NODES = (
    Node(
        "Transform",
        outputs=("transform_graph", "transformed_examples", "updated_analyzer_cache"),
        upstream=("ExampleGen", "SchemaGen", "DataGate", "BaseModel"),
    ),
)
