"""Exports a store as JSON Lines, OpenLineage events (https://openlineage.io, spec 2-0-2), or pandas data frames."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pipeline.core.metadata.store import INPUT, OUTPUT, Artifact, Event, Execution, Run, Store
from pipeline.core.text import flatten_json

if TYPE_CHECKING:
    import pandas as pd
    from _typeshed import DataclassInstance

_PAGE = 200
"""Number of runs that are read at a time."""
_KINDS = {INPUT: "input", OUTPUT: "output"}
_PRODUCER = "urn:tfx-pipeline"
_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PARENT = "https://openlineage.io/spec/facets/1-0-0/ParentRunFacet.json#/$defs/ParentRunFacet"
_STATES = {"COMPLETE": "COMPLETE", "CACHED": "COMPLETE", "FAILED": "FAIL", "CANCELED": "ABORT"}
_TIMES = ("started", "updated", "created", "ended")


def lines(store: Store, pipeline: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the content of a store run by run, the oldest run first.

    Args:
      store: The store.
      pipeline: Name of the pipeline whose runs are exported. If None, all runs.

    Yields:
      JSON objects. Their `kind` is one of:
      `artifact`: An artifact. It precedes the first run that uses it.
      `run`: A run, with its config as a JSON text.
      `execution`: An execution of the run, with its parameters and events. An event consists of the artifact, its key,
        and `input`, `output` or the number that ML Metadata gives to another type of event.
    """
    yielded: set[int] = set()
    for runs in _read_pages(store, pipeline):
        configs = store.configs(run.name for run in runs)
        executions, events, parameters, artifacts = _read_content(store, runs, yielded)
        for artifact in artifacts.values():
            yield {"kind": "artifact", **asdict(artifact)}
        yielded |= set(artifacts)
        for run in runs:
            yield {"kind": "run", **asdict(run), "config": configs.get(run.name)}
            for execution in executions[run.name]:
                yield {
                    "kind": "execution",
                    **asdict(execution),
                    "parameters": parameters[execution.id],
                    "events": [
                        {"artifact": event.artifact, "key": event.key, "event": _KINDS.get(event.kind, event.kind)}
                        for event in events.get(execution.id, ())
                    ],
                }


def openlineage(store: Store, pipeline: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield an OpenLineage RunEvent for each finished execution, the oldest run first.

    The folders of artifacts are the data sets of the events.

    Args:
      store: The store.
      pipeline: Name of the pipeline whose runs are exported. If None, all runs.
    """
    for runs in _read_pages(store, pipeline):
        executions, events, parameters, artifacts = _read_content(store, runs, set())
        for run in runs:
            for execution in executions[run.name]:
                if execution.state in _STATES:
                    artifacts_used = [(event, artifacts[event.artifact]) for event in events.get(execution.id, ())]
                    yield _make_run_event(run, execution, artifacts_used, parameters[execution.id])


def _read_pages(store: Store, pipeline: str | None) -> Iterator[list[Run]]:
    """Yield lists of `_PAGE` runs, the oldest first, so that the memory for their executions is bounded."""
    runs = store.runs(pipeline)[::-1]
    for start in range(0, len(runs), _PAGE):
        yield runs[start : start + _PAGE]


def _read_content(
    store: Store, runs: list[Run], without: set[int]
) -> tuple[dict[str, list[Execution]], dict[int, list[Event]], dict[int, dict[str, Any]], dict[int, Artifact]]:
    """Read the executions of runs and their artifacts.

    Args:
      store: The store.
      runs: The runs.
      without: IDs of artifacts to skip.

    Returns:
      The executions by run, the events and the parameters by execution, and the artifacts by ID.
    """
    executions: dict[str, list[Execution]] = {run.name: [] for run in runs}
    for execution in store.executions(*executions):
        executions[execution.run].append(execution)
    ids = [execution.id for executions_of_run in executions.values() for execution in executions_of_run]
    events: dict[int, list[Event]] = {}
    for event in store.events(ids):
        events.setdefault(event.execution, []).append(event)
    artifacts = store.artifacts_by_id(
        event.artifact
        for events_of_execution in events.values()
        for event in events_of_execution
        if event.artifact not in without
    )
    return executions, events, store.parameters(ids), artifacts


def _make_run_event(
    run: Run, execution: Execution, artifacts: list[tuple[Event, Artifact]], parameters: dict[str, Any]
) -> dict[str, Any]:
    parent = {
        "run": {"runId": _make_id(run.pipeline, run.name)},
        "job": {"namespace": run.pipeline, "name": run.pipeline},
    }
    return {
        "eventType": _STATES[execution.state],
        "eventTime": datetime.fromtimestamp(execution.updated, timezone.utc).isoformat(),
        "producer": _PRODUCER,
        "schemaURL": _EVENT,
        "run": {
            "runId": _make_id(run.pipeline, run.name, str(execution.id)),
            "facets": {
                "parent": {"_producer": _PRODUCER, "_schemaURL": _PARENT, **parent},
                "tfx": {
                    "_producer": _PRODUCER,
                    "_schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunFacet",
                    "run": run.name,
                    "component": execution.type,
                    "cached": execution.state == "CACHED",
                    "parameters": dict(
                        item for name, value in parameters.items() for item in flatten_json(value, name)
                    ),
                },
            },
        },
        "job": {"namespace": run.pipeline, "name": f"{run.pipeline}.{execution.node}"},
        "inputs": [_make_data_set(event, artifact) for event, artifact in artifacts if event.kind == INPUT],
        "outputs": [_make_data_set(event, artifact) for event, artifact in artifacts if event.kind == OUTPUT],
    }


def _make_data_set(event: Event, artifact: Artifact) -> dict[str, Any]:
    # OpenLineage names a data set by a namespace, such as the bucket, and a name within it.
    scheme, separator, location = artifact.uri.partition("://")
    bucket, _, path = location.partition("/")
    namespace, name = (f"{scheme}://{bucket}", path) if separator else ("file", artifact.uri)
    facet = {
        "_producer": _PRODUCER,
        "_schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetFacet",
        "artifact": artifact.id,
        "type": artifact.type,
        "key": event.key,
    }
    return {"namespace": namespace, "name": name, "facets": {"tfx": facet}}


def _make_id(*names: str) -> str:
    """Return a UUID that depends only on the names, so that a receiver recognizes events that are sent twice."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join((_PRODUCER, *names))))


def frame(records: Iterable[DataclassInstance]) -> pd.DataFrame:
    """Convert records to a data frame: runs, executions, artifacts, events, run list entries or column statistics.

    Args:
      records: Instances of one dataclass.

    Returns:
      A data frame with a row per record, in the same order, and a column per field. The keys of a dictionary become
      columns such as `properties.span` or `metrics.auc`. Times are timestamps in UTC.
    """
    # Imported late because only notebooks need pandas here.
    import pandas as pd

    table = pd.json_normalize([asdict(record) for record in records])
    for name in _TIMES:
        if name in table:
            table[name] = pd.to_datetime(table[name], unit="s", utc=True).dt.round("ms")
    return table
