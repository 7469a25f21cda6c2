"""Closes what a process that died has left open in ML Metadata, so that no reader takes it for running or whole."""

from __future__ import annotations

from ml_metadata.proto import metadata_store_pb2 as proto

from pipeline.metadata.connection import reader, writable
from pipeline.metadata.database import Location
from pipeline.metadata.store import Execution

_OPEN = ("NEW", "RUNNING")


def cancel_unfinished(location: Location, run: str, node: str | None = None) -> list[Execution]:
    """Marks a run's unfinished executions CANCELED and their pending artifacts ABANDONED.

    CANCELED is what TFX takes up again under the same run id. Call it only when no process of the run is alive.

    Returns:
      The executions that were still open.
    """
    unfinished = [execution for execution in reader(location).executions(run) if execution.state in _OPEN]
    unfinished = [execution for execution in unfinished if node in (None, execution.node)]
    if not unfinished:
        return []
    store = writable(location)
    ids = [execution.id for execution in unfinished]
    artifact_ids = {event.artifact_id for event in store.get_events_by_execution_ids(ids) if _is_output(event)}
    pending = [
        artifact
        for artifact in store.get_artifacts_by_id(sorted(artifact_ids))
        if artifact.state == proto.Artifact.PENDING
    ]
    for artifact in pending:
        artifact.state = proto.Artifact.ABANDONED
    if pending:
        store.put_artifacts(pending)
    executions = store.get_executions_by_id(ids)
    for execution in executions:
        execution.last_known_state = proto.Execution.CANCELED
    store.put_executions(executions)
    return unfinished


def _is_output(event: proto.Event) -> bool:
    return event.type in (proto.Event.OUTPUT, proto.Event.PENDING_OUTPUT)
