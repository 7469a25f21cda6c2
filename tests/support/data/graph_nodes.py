"""The size of a graph, as TensorFlow optimises it."""

from __future__ import annotations

from typing import Any

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def count_nodes(function: Any) -> int:
    """Count the nodes of a concrete function; a called function counts once per call."""
    graph = function.graph.as_graph_def()
    return _count(graph.node, {function.signature.name: function.node_def for function in graph.library.function})


def _count(nodes: Any, functions: dict[str, Any]) -> int:
    return sum(_count(functions[node.attr["f"].func.name], functions) if node.op in _CALLS else 1 for node in nodes)
