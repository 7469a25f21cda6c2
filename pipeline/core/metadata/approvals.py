"""Record the approval of a pushed model: an execution that reads the model, and properties of the model's artifact."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ml_metadata.proto import metadata_store_pb2 as proto

from components.base.files import exclusive_lock
from pipeline.core.metadata.connection import RetryingStore, open_existing
from pipeline.core.metadata.location import Location
from pipeline.core.metadata.sql import hold_advisory_lock
from pipeline.core.metadata.store import NODE_CONTEXT, PIPELINE_CONTEXT, RUN_CONTEXT, Run, Value

NODE = "Approval"
"""Type and node name of the executions."""
_LOCK = ".approval.lock"


def exclude_others(location: Location) -> contextlib.AbstractContextManager[None]:
    """Hold a lock within the block, so that the approvals recorded in a store happen one after the other.

    A file store is locked until the block ends. A database's lock has the limits of `hold_advisory_lock`.
    """
    if isinstance(location, Path):
        return exclusive_lock(location.with_name(_LOCK))
    return hold_advisory_lock(location, NODE)


def record(
    location: Location, run: Run, inputs: Sequence[tuple[str, int]], pushed_model: int, properties: Mapping[str, Value]
) -> int:
    """Record an approval in one transaction.

    The execution belongs to the run and the pipeline, as the executions of nodes do. The artifact of the pushed model
    is updated in place: it stays the single output of the Pusher, so that later nodes and runs find the version, and
    the cached outputs of nodes that read the artifact are no longer used, because its properties have changed.

    Args:
      location: The store.
      run: Run whose model was approved.
      inputs: Input keys and IDs of the artifacts that the approver had to decide on.
      pushed_model: ID of the PushedModel artifact. It is an input of the execution as well.
      properties: Properties of the execution and of the PushedModel artifact.

    Returns:
      ID of the execution.

    Raises:
      MachineError: The store cannot be opened.
    """
    store = open_existing(location)
    events = [(artifact_id, _make_event(key)) for key, artifact_id in (*inputs, ("pushed_model", pushed_model))]
    artifacts = {artifact.id: artifact for artifact in store.get_artifacts_by_id([number for number, _ in events])}
    execution = proto.Execution(
        type_id=store.put_execution_type(proto.ExecutionType(name=NODE)), last_known_state=proto.Execution.COMPLETE
    )
    for name, value in properties.items():
        for values in (execution.custom_properties, artifacts[pushed_model].custom_properties):
            if isinstance(value, int):
                values[name].int_value = value
            else:
                values[name].string_value = str(value)
    contexts = [
        _get_context(store, PIPELINE_CONTEXT, run.pipeline),
        _get_context(store, RUN_CONTEXT, run.name),
        _get_context(store, NODE_CONTEXT, f"{run.pipeline}.{NODE}"),
    ]
    pairs = [(artifacts[number], event) for number, event in events]
    execution_id, _, _ = store.put_execution(execution, pairs, contexts, reuse_context_if_already_exist=True)
    return int(execution_id)


def _get_context(store: RetryingStore, type_name: str, name: str) -> proto.Context:
    """Return a context; if it does not exist, return a new one, which `put_execution` creates."""
    context = store.get_context_by_type_and_name(type_name, name)
    return context or proto.Context(type_id=store.get_context_type(type_name).id, name=name)


def _make_event(key: str) -> proto.Event:
    event = proto.Event(type=proto.Event.INPUT)
    event.path.steps.add().key = key
    event.path.steps.add().index = 0
    return event
