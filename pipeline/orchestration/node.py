"""Run one node of a compiled pipeline in this process. Every orchestrator uses this module, local or in a cluster."""

from __future__ import annotations

import difflib
import functools
import json
import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tfx.dsl.compiler import constants
from tfx.dsl.io import fileio
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable import partial_run_utils, runtime_parameter_utils
from tfx.proto.orchestration import pipeline_pb2

from components.base import recorded_config, user_code
from components.base.errors import InputError, MachineError, PipelineError, find, to_error
from components.base.object_store import is_object_store
from components.compat.tfx.launcher import Metadata, NodeLauncher
from pipeline.authoring import own_nodes
from pipeline.core.artifact_copies import ArtifactCopies
from pipeline.core.metadata.connection import (
    cancel,
    connect,
    from_ir,
    list_unfinished,
    make_connection_config,
    open_reader,
)
from pipeline.core.metadata.location import Location
from pipeline.core.metadata.store import Artifact, Execution, Store
from pipeline.core.records import CACHED, DONE, EXCLUDE, FAILED, REUSE, RUN, SKIPPED, GraphNode, NodeOutcome
from pipeline.orchestration import current_node, resumed_run

RESOLVER = "tfx.dsl.components.common.resolver.Resolver"


def graph(ir: bytes) -> tuple[GraphNode, ...]:
    """Return the nodes of a compiled pipeline, in topological order."""
    pipeline = pipeline_pb2.Pipeline.FromString(ir)
    return tuple(
        GraphNode(node.node_info.id, tuple(node.upstream_nodes), _get_action(node))
        for node in nodes_of(pipeline).values()
    )


def prepare(ir: bytes, run_id: str, from_nodes: Collection[str] = (), to_nodes: Collection[str] = ()) -> bytes:
    """Change a pipeline into a partial run, which reuses outputs of an earlier run.

    The reused outputs are registered in ML Metadata as outputs of this run, so that its lineage is complete.

    Args:
      ir: The compiled pipeline.
      run_id: ID of the run.
      from_nodes: Run these nodes and the nodes downstream of them. If empty, start from the first nodes.
      to_nodes: Run these nodes and the nodes upstream of them. If empty, run up to the last nodes.

    Returns:
      The compiled pipeline with each node marked as run, reused or excluded.

    Raises:
      InputError: A named node does not exist, or no earlier run has all required outputs.
    """
    pipeline = load(ir, run_id)
    _check_names({*from_nodes, *to_nodes}, nodes_of(pipeline))
    partial_run_utils.mark_pipeline(pipeline, from_nodes=list(from_nodes) or None, to_nodes=list(to_nodes) or None)
    _settle_skipped(pipeline)
    needed = [node_id for node_id, node in nodes_of(pipeline).items() if _is_required(node)]
    store = store_of(pipeline)
    base = _newest_run_with(open_reader(store), pipeline.pipeline_info.id, run_id, needed)
    if needed and base is None:
        raise InputError(
            f"nothing to start from: no earlier run has outputs of {', '.join(needed)}",
            "run all nodes first, without --from",
        )
    if base is not None:
        with metadata_of(store, find_copies(pipeline)) as handle:
            partial_run_utils.snapshot(handle, pipeline, base_run_id=base)
    return bytes(pipeline.SerializeToString())


def run_node(ir: bytes, node_id: str, run_id: str) -> NodeOutcome:
    """Run a node unless it has already succeeded in this run; return its failure instead of raising it.

    The leftovers of a killed attempt are removed first, so the caller must hold the lock of the node, see `run_locks`.
    The outcome is read from ML Metadata because TFX's launcher does not report a missing input as an error.
    """
    pipeline = load(ir, run_id)
    location = store_of(pipeline)
    store = open_reader(location)
    started = current_node.begin(pipeline.pipeline_info.id, run_id, node_id)
    earlier = store.execution(run_id, node_id)
    _, config = config_of(ir)
    try:
        run_nodes = {name: node for name, node in nodes_of(pipeline).items() if _get_action(node) == RUN}
        resumed_run.check_finished(store, run_id, run_nodes, config)
        resumed_run.record_config(store, location, run_id, config)
    except PipelineError as error:
        return NodeOutcome(FAILED, earlier.id if earlier else None, error=error)
    if earlier is not None and earlier.succeeded:
        return replace(_make_outcome(store, earlier), earlier=True)
    clean_up(ir, run_id, only=node_id)
    try:
        launcher_of(pipeline, node_id, location, earlier, find_copies(pipeline)).launch()
    # The user's code may call sys.exit, which must be a failure of the node as well.
    except (Exception, SystemExit) as error:
        logging.exception("%s failed", node_id)
        return NodeOutcome(
            FAILED,
            earlier.id if earlier else None,
            error=_convert_error(pipeline, node_id, error),
            jobs=tuple(started.jobs),
        )
    execution = store.execution(run_id, node_id)
    if execution is None:
        return NodeOutcome(SKIPPED)
    if not execution.succeeded:
        return NodeOutcome(FAILED, execution.id, error=_make_input_error(node_id))
    return replace(_make_outcome(store, execution), jobs=tuple(started.jobs))


def clean_up(ir: bytes, run_id: str, only: str | None = None) -> list[str]:
    """Remove what killed nodes of a run have left: unfinished executions, partial outputs and temporary files.

    Call it only when no process of the run, or of the node `only`, is alive. The outputs are removed before the
    executions are closed: after an interruption in between, the next call still finds the executions, and a next
    attempt may write into the same folders.

    Args:
      ir: The compiled pipeline.
      run_id: ID of the run.
      only: ID of the node to clean up. If None, all nodes of the run.

    Returns:
      IDs of the nodes with unfinished executions.
    """
    pipeline = load(ir, run_id)
    nodes = nodes_of(pipeline)
    root, copies = _get_root(pipeline), find_copies(pipeline)
    store = store_of(pipeline)
    unfinished = [
        execution
        for execution in list_unfinished(store, run_id)
        if execution.node in nodes and only in (None, execution.node)
    ]
    for execution in unfinished:
        folder = f"{root}/{execution.node}"
        leftovers = [f"{folder}/{key}/{execution.id}" for key in nodes[execution.node].outputs.outputs]
        leftovers.append(f"{folder}/.system/executor_execution/{execution.id}")
        for leftover in leftovers:
            if fileio.exists(leftover):
                fileio.rmtree(leftover)
            if copies is not None:
                copies.remove(leftover)
    cancel(store, unfinished)
    return [execution.node for execution in unfinished]


def text_parameters(ir: bytes, node_id: str) -> dict[str, str]:
    """Return the text parameters of a node, by name."""
    parameters = nodes_of(pipeline_pb2.Pipeline.FromString(ir))[node_id].parameters.parameters
    return {name: parameter.field_value.string_value for name, parameter in parameters.items()}


def set_parameter(ir: bytes, node_id: str, name: str, value: str) -> bytes:
    """Return a copy of a compiled pipeline with another value for a text parameter of a node."""
    pipeline = pipeline_pb2.Pipeline.FromString(ir)
    nodes_of(pipeline)[node_id].parameters.parameters[name].field_value.string_value = value
    return bytes(pipeline.SerializeToString(deterministic=True))


def config_of(ir: bytes) -> tuple[str, str]:
    """Return the name of a compiled pipeline and its config as JSON, "" if it was not compiled from a config."""
    pipeline = pipeline_pb2.Pipeline.FromString(ir)
    return str(pipeline.pipeline_info.id), _read_config(pipeline)


def _read_config(pipeline: Any) -> str:
    contexts = (context for node in nodes_of(pipeline).values() for context in node.contexts.contexts)
    configs = (
        recorded_config.join({name: value.field_value.string_value for name, value in context.properties.items()})
        for context in contexts
    )
    return next(filter(None, configs), "")


def root_of(ir: bytes, run_id: str) -> str:
    """Return the path or URL of the folder that contains a run's artifacts."""
    return _get_root(load(ir, run_id))


def open_store(ir: bytes) -> Store:
    """Return the metadata store that a compiled pipeline writes to."""
    pipeline = pipeline_pb2.Pipeline.FromString(ir)
    return open_reader(store_of(pipeline), _get_root(pipeline) or None)


def metadata_of(store: Location, copies: ArtifactCopies | None = None) -> Metadata:
    """Return TFX's handle of a store that uses a connection of this project.

    Args:
      store: Location of the store.
      copies: Where the artifacts are; see `find_copies`.
    """
    return Metadata(make_connection_config(store), functools.partial(connect, store, copies=copies))


def find_copies(pipeline: Any) -> ArtifactCopies | None:
    """Return the copies of artifacts that a run works with; None if TensorFlow opens the artifacts where they are."""
    config = _read_config(pipeline)
    url = (json.loads(config).get("runtime") or {}).get("artifacts") if config else None
    return ArtifactCopies(_get_root(pipeline), url.rstrip("/")) if url and is_object_store(url) else None


def launcher_of(
    pipeline: Any, node_id: str, store: Location, earlier: Execution | None, copies: ArtifactCopies | None
) -> NodeLauncher:
    """Return TFX's launcher for one node.

    Args:
      pipeline: Pipeline message of the run.
      node_id: ID of the node.
      store: Location of the metadata store.
      earlier: Execution of the node in an earlier attempt at the same run. If None, this is the first attempt.
      copies: Where the artifacts are; see `find_copies`.
    """
    deployment = runner_utils.extract_local_deployment_config(pipeline)
    return NodeLauncher(
        earlier.id if earlier else None,
        copies,
        pipeline_node=nodes_of(pipeline)[node_id],
        mlmd_connection=metadata_of(store, copies),
        pipeline_info=pipeline.pipeline_info,
        pipeline_runtime_spec=pipeline.runtime_spec,
        executor_spec=runner_utils.extract_executor_spec(deployment, node_id),
        custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, node_id),
    )


def load(ir: bytes, run_id: str) -> Any:
    """Return the pipeline message of a run, with the ID of the run filled in."""
    pipeline = pipeline_pb2.Pipeline.FromString(ir)
    runtime_parameter_utils.substitute_runtime_parameter(pipeline, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id})
    return pipeline


def nodes_of(pipeline: Any) -> dict[str, Any]:
    """Return the node messages by ID, in the compiler's topological order."""
    return {node.pipeline_node.node_info.id: node.pipeline_node for node in pipeline.nodes}


def store_of(pipeline: Any) -> Location:
    """Return the location of the pipeline's metadata store."""
    config = runner_utils.extract_local_deployment_config(pipeline).metadata_connection_config
    return from_ir(getattr(config, config.WhichOneof("connection_config")))


def _convert_error(pipeline: Any, node_id: str, error: BaseException) -> PipelineError:
    """Convert the exception of a failed node; an error in the user's component names the line of the user's file."""
    failure = None
    if own_nodes.CODE in nodes_of(pipeline)[node_id].parameters.parameters and find(error) is None:
        deployment = runner_utils.extract_local_deployment_config(pipeline)
        spec = runner_utils.extract_executor_spec(deployment, node_id)
        path = getattr(spec, "python_executor_spec", spec).class_path
        failure = user_code.find_failure(path, node_id, error)
    return failure or to_error(node_id, error, "see the full cause in its log")


def _get_root(pipeline: Any) -> str:
    return str(pipeline.runtime_spec.pipeline_root.field_value.string_value)


def _get_action(node: Any) -> str:
    if not node.execution_options.HasField("skip"):
        return RUN
    return REUSE if _is_required(node) else EXCLUDE


def _is_required(node: Any) -> bool:
    skip = pipeline_pb2.NodeExecutionOptions.Skip
    options = node.execution_options
    return bool(options.HasField("skip") and options.skip.reuse_artifacts_mode == skip.REQUIRED)


def _settle_skipped(pipeline: Any) -> None:
    """Mark each skipped node as either required or excluded, but let required resolvers run.

    A resolver is fast, and its outputs from an earlier run cannot be reused: the Evaluator would silently lose its
    baseline.
    """
    skip = pipeline_pb2.NodeExecutionOptions.Skip
    for node in nodes_of(pipeline).values():
        if _is_required(node) and node.node_info.type.name == RESOLVER:
            node.execution_options.run.SetInParent()
        elif node.execution_options.HasField("skip") and not _is_required(node):
            node.execution_options.skip.reuse_artifacts_mode = skip.NEVER


def _check_names(names: Collection[str], nodes: Collection[str]) -> None:
    for name in sorted(set(names) - set(nodes)):
        close = difflib.get_close_matches(name, nodes, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the nodes are {', '.join(nodes)}"
        raise InputError(f"--from/--to: expected a node of this pipeline, received {name!r}", hint)


def _newest_run_with(store: Store, pipeline: str, this_run: str, nodes: Collection[str]) -> str | None:
    """Return the newest earlier run in which all these nodes succeeded."""
    for run in store.runs(pipeline) if nodes else ():
        ended_well = {execution.node for execution in store.executions(run.name) if execution.succeeded}
        if run.name != this_run and ended_well.issuperset(nodes):
            return run.name
    return None


def _make_outcome(store: Store, execution: Execution) -> NodeOutcome:
    state = CACHED if execution.state == "CACHED" else DONE
    artifacts = [artifact for artifacts_of_key in store.outputs(execution).values() for artifact in artifacts_of_key]
    return NodeOutcome(state, execution.id, rows=_count_rows(artifacts))


def _count_rows(artifacts: list[Artifact]) -> int | None:
    counts = [
        int(count)
        for artifact in artifacts
        if artifact.type == "Examples"
        for split in artifact.splits
        if (count := artifact.properties.get(f"rows_{split}")) is not None
    ]
    return sum(counts) if counts else None


def _make_input_error(node_id: str) -> PipelineError:
    return MachineError(
        f"{node_id} could not start: an input is missing",
        "find the missing input in its log; then --resume the run",
    )
