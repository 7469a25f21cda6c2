"""The entry of Pusher in the list of nodes."""

from components.base.node import Node

NODES = (
    Node(
        "Pusher",
        outputs=("pushed_model",),
        upstream=("ExampleGen", "Trainer", "Evaluator", "EdgeExporter", "InfraValidator"),
    ),
)
