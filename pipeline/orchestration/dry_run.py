"""What a run would do, determined by TFX's own drivers on a copy of the metadata store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfx.orchestration.local import runner_utils
from tfx.proto.orchestration import executable_spec_pb2

from pipeline.core.metadata.connection import open_reader
from pipeline.core.metadata.location import Location
from pipeline.core.metadata.maintenance import copy
from pipeline.core.records import CACHED, RUN
from pipeline.orchestration import node as nodes

_RUN_ID = "plan"


@dataclass(frozen=True)
class PlannedNode:
    """What a run would do with one node.

    Attributes:
      id: the node.
      will: `cached` or `run`.
      why: the reason that it runs, if known.
      inputs: the outputs of other nodes that it reads, as `Node.output`.
      on_beam: whether it runs on the engine.
    """

    id: str
    will: str
    why: str
    inputs: tuple[str, ...]
    on_beam: bool


def forecast(ir: bytes, scratch: Path) -> list[PlannedNode]:
    """Return the nodes of a run in their order, and which of them are cached.

    Each node's driver resolves its inputs and looks for a cached execution, as in a run, but on a copy of the store;
    a cached node passes its outputs on to the next. The pipeline's own files are not changed.

    Args:
      ir: the compiled pipeline.
      scratch: an empty folder, which the caller removes.
    """
    pipeline = nodes.load(ir, _RUN_ID)
    store = scratch / "metadata.db"
    copy(nodes.store_of(pipeline), store)
    pipeline.runtime_spec.pipeline_root.field_value.string_value = str(scratch / "artifacts")
    deployment = runner_utils.extract_local_deployment_config(pipeline)
    planned: list[PlannedNode] = []
    # A resolver runs each time, but does not change its outputs: downstream nodes can still be cached.
    changing: set[str] = set()
    for node_id, node in nodes.nodes_of(pipeline).items():
        launcher = nodes.launcher_of(pipeline, node_id, store, None)
        after = [above for above in node.upstream_nodes if above in changing]
        if node.node_info.type.name == nodes.RESOLVER:
            launcher.launch()
            planned.append(PlannedNode(node_id, RUN, "finds the latest blessed model", _sources(node), on_beam=False))
            continue
        if after or launcher.is_needed():
            changing.add(node_id)
        why = f"after {', '.join(after)}" if after else _why(store, pipeline.pipeline_info.id, node_id)
        will, why = (RUN, why) if node_id in changing else (CACHED, "")
        spec = runner_utils.extract_executor_spec(deployment, node_id)
        on_beam = isinstance(spec, executable_spec_pb2.BeamExecutableSpec)
        planned.append(PlannedNode(node_id, will, why, _sources(node), on_beam))
    return planned


def _why(location: Location, pipeline: str, node_id: str) -> str:
    store = open_reader(location)
    earlier = [run.name for run in store.runs(pipeline) if run.name != _RUN_ID]
    ran = any(execution.node == node_id and execution.succeeded for execution in store.executions(*earlier))
    return "its inputs, parameters or code have changed" if ran else "has not run yet"


def _sources(node: Any) -> tuple[str, ...]:
    """Return the outputs that a node reads."""
    channels = [channel for spec in node.inputs.inputs.values() for channel in spec.channels if channel.output_key]
    return tuple(sorted({f"{channel.producer_node_query.id}.{channel.output_key}" for channel in channels}))
