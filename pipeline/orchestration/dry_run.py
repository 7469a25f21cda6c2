"""Predict what a run would do, by running TFX's drivers on a copy of the metadata store."""

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
      id: ID of the node.
      will: Predicted action, `cached` or `run`.
      why: Reason why the node runs; "" if it is cached.
      inputs: Outputs of other nodes that the node reads, each as `Node.output`.
      on_beam: Whether the node runs on the Beam engine.
    """

    id: str
    will: str
    why: str
    inputs: tuple[str, ...]
    on_beam: bool


def forecast(ir: bytes, scratch: Path) -> list[PlannedNode]:
    """Predict for each node of a run, in topological order, whether it is cached.

    As in a run, the driver of each node resolves its inputs and looks for a cached execution, but in a copy of the
    store. A cached node passes its outputs on to downstream nodes. The files of the pipeline are not changed.

    Args:
      ir: The compiled pipeline.
      scratch: Empty folder for temporary files. The caller removes it.
    """
    pipeline = nodes.load(ir, _RUN_ID)
    store = scratch / "metadata.db"
    copy(nodes.store_of(pipeline), store)
    # Found before the root changes: the metadata contains the URLs of artifacts, not paths below the scratch folder.
    copies = nodes.find_copies(pipeline)
    pipeline.runtime_spec.pipeline_root.field_value.string_value = str(scratch / "artifacts")
    deployment = runner_utils.extract_local_deployment_config(pipeline)
    planned: list[PlannedNode] = []
    # Resolvers are not added: they run each time, but downstream nodes can still be cached.
    changing: set[str] = set()
    for node_id, node in nodes.nodes_of(pipeline).items():
        launcher = nodes.launcher_of(pipeline, node_id, store, None, copies)
        rerun_upstream = [upstream for upstream in node.upstream_nodes if upstream in changing]
        if node.node_info.type.name == nodes.RESOLVER:
            launcher.launch()
            planned.append(
                PlannedNode(node_id, RUN, "finds the latest blessed model", _list_inputs(node), on_beam=False)
            )
            continue
        if rerun_upstream or launcher.is_needed():
            changing.add(node_id)
        why = (
            f"after {', '.join(rerun_upstream)}"
            if rerun_upstream
            else _explain_run(store, pipeline.pipeline_info.id, node_id)
        )
        will, why = (RUN, why) if node_id in changing else (CACHED, "")
        spec = runner_utils.extract_executor_spec(deployment, node_id)
        on_beam = isinstance(spec, executable_spec_pb2.BeamExecutableSpec)
        planned.append(PlannedNode(node_id, will, why, _list_inputs(node), on_beam))
    return planned


def _explain_run(location: Location, pipeline: str, node_id: str) -> str:
    store = open_reader(location)
    earlier = [run.name for run in store.runs(pipeline) if run.name != _RUN_ID]
    ran = any(execution.node == node_id and execution.succeeded for execution in store.executions(*earlier))
    return "its inputs, parameters or code have changed" if ran else "has not run yet"


def _list_inputs(node: Any) -> tuple[str, ...]:
    """Return the outputs of other nodes that a node reads, sorted, each as `Node.output`."""
    channels = [channel for spec in node.inputs.inputs.values() for channel in spec.channels if channel.output_key]
    return tuple(sorted({f"{channel.producer_node_query.id}.{channel.output_key}" for channel in channels}))
