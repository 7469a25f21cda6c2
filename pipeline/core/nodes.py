"""The built-in nodes that a pipeline of `build.py` may contain; the section `nodes` of a config can add more.

The config decides whether a pipeline contains a Tuner, a BaseModel, an EdgeExporter, an InfraValidator, a Predictor and
a Monitor. This module does not import TFX, so that names and dependencies can be checked quickly.
"""

from __future__ import annotations

from typing import Any

from components.base.node import Node, NodeWithResult, OptionalNode
from components.base.registry import Registry
from components.data_gate import node as data_gate
from components.edge import node as edge
from components.evaluator import node as evaluator
from components.ingest import node as ingest
from components.monitor import node as monitor
from components.predictor import node as predictor
from components.pusher import node as pusher
from components.serving import node as serving
from components.statistics import node as statistics
from components.trainer import node as trainer
from components.transform import node as transform
from components.tuner import node as tuner

_FOLDERS = (
    *(ingest, statistics, data_gate, transform, tuner, trainer, evaluator),
    *(edge, serving, pusher, predictor, monitor),
)
NODES: Registry[Node] = Registry(
    "nodes",
    {node.name: node for folder in _FOLDERS for node in folder.NODES},
    "an instance of components.base.node.OptionalNode",
    lambda entry: isinstance(entry, OptionalNode),
)
"""Name → node, in the order in which the output of a run lists the nodes. Installed packages add optional nodes to the
group `tfx_pipeline.nodes`; the name of the entry point is the name of the node."""


class _NodesWithResult(dict[str, NodeWithResult[Any]]):
    """The built-in nodes that record a result. Nodes of installed packages are imported on first access."""

    def __missing__(self, name: str) -> NodeWithResult[Any]:
        if not isinstance(node := NODES[name], NodeWithResult):
            raise KeyError(name)
        return node


NODES_WITH_RESULT = _NodesWithResult(
    {name: node for name, node in NODES.built_in.items() if isinstance(node, NodeWithResult)}
)
"""Name → node, for the nodes that record a result for the summary of a run."""
