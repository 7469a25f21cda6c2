"""Export of a store as JSON Lines, as OpenLineage events (https://openlineage.io, spec 2-0-2), or as pandas frames."""

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
_KINDS = {INPUT: "input", OUTPUT: "output"}
_PRODUCER = "urn:tfx-pipeline"
_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PARENT = "https://openlineage.io/spec/facets/1-0-0/ParentRunFacet.json#/$defs/ParentRunFacet"
_STATES = {"COMPLETE": "COMPLETE", "CACHED": "COMPLETE", "FAILED": "FAIL", "CANCELED": "ABORT"}
_TIMES = ("started", "updated", "created", "ended")


def lines(store: Store, pipeline: str | None = None) -> Iterator[dict[str, Any]]:
    """Yields the content of a store, or of one pipeline, run by run, oldest first.

    Yields:
      JSON objects with a `kind`: `artifact` (before the first run that uses it), `run` (with its config, as JSON), and
      the run's `execution`s, each with its parameters and events (the artifact, its key, and `input`, `output` or ML
      Metadata's number of another type of event).
    """
    yielded: set[int] = set()
    for runs in _pages(store, pipeline):
        configs = store.configs(run.name for run in runs)
        executions, events, parameters, artifacts = _content(store, runs, yielded)
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
    """Yields an OpenLineage RunEvent for each execution that has ended, oldest first; data sets are artifacts' folders.

    Args:
      store: to be exported.
      pipeline: only its runs; None: of all pipelines.
    """
    for runs in _pages(store, pipeline):
        executions, events, parameters, artifacts = _content(store, runs, set())
        for run in runs:
            for execution in executions[run.name]:
                if execution.state in _STATES:
                    used = [(event, artifacts[event.artifact]) for event in events.get(execution.id, ())]
                    yield _run_event(run, execution, used, parameters[execution.id])


def _pages(store: Store, pipeline: str | None) -> Iterator[list[Run]]:
    """Yields the runs, oldest first, a few hundred at a time, in bounded memory."""
    runs = store.runs(pipeline)[::-1]
    for start in range(0, len(runs), _PAGE):
        yield runs[start : start + _PAGE]


def _content(
    store: Store, runs: list[Run], without: set[int]
) -> tuple[dict[str, list[Execution]], dict[int, list[Event]], dict[int, dict[str, Any]], dict[int, Artifact]]:
    """Returns run → executions, execution → events, execution → parameters, and artifacts that are not in `without`."""
    executions: dict[str, list[Execution]] = {run.name: [] for run in runs}
    for execution in store.executions(*executions):
        executions[execution.run].append(execution)
    numbers = [each.id for of_run in executions.values() for each in of_run]
    events: dict[int, list[Event]] = {}
    for event in store.events(numbers):
        events.setdefault(event.execution, []).append(event)
    artifacts = store.artifacts_by_id(
        event.artifact for of_execution in events.values() for event in of_execution if event.artifact not in without
    )
    return executions, events, store.parameters(numbers), artifacts


def _run_event(
    run: Run, execution: Execution, used: list[tuple[Event, Artifact]], parameters: dict[str, Any]
) -> dict[str, Any]:
    parent = {"run": {"runId": _id(run.pipeline, run.name)}, "job": {"namespace": run.pipeline, "name": run.pipeline}}
    return {
        "eventType": _STATES[execution.state],
        "eventTime": datetime.fromtimestamp(execution.updated, timezone.utc).isoformat(),
        "producer": _PRODUCER,
        "schemaURL": _EVENT,
        "run": {
            "runId": _id(run.pipeline, run.name, str(execution.id)),
            "facets": {
                "parent": {"_producer": _PRODUCER, "_schemaURL": _PARENT, **parent},
                "tfx": {
                    "_producer": _PRODUCER,
                    "_schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunFacet",
                    "run": run.name,
                    "component": execution.type,
                    "cached": execution.state == "CACHED",
                    "parameters": dict(
                        each for name, value in parameters.items() for each in flatten_json(value, name)
                    ),
                },
            },
        },
        "job": {"namespace": run.pipeline, "name": f"{run.pipeline}.{execution.node}"},
        "inputs": [_data_set(event, artifact) for event, artifact in used if event.kind == INPUT],
        "outputs": [_data_set(event, artifact) for event, artifact in used if event.kind == OUTPUT],
    }


def _data_set(event: Event, artifact: Artifact) -> dict[str, Any]:
    scheme, separator, rest = artifact.uri.partition("://")
    bucket, _, path = rest.partition("/")
    namespace, name = (f"{scheme}://{bucket}", path) if separator else ("file", artifact.uri)
    facet = {
        "_producer": _PRODUCER,
        "_schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetFacet",
        "artifact": artifact.id,
        "type": artifact.type,
        "key": event.key,
    }
    return {"namespace": namespace, "name": name, "facets": {"tfx": facet}}


def _id(*names: str) -> str:
    """Returns the same id for the same names, so that a receiver recognizes an event that is sent twice."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join((_PRODUCER, *names))))


def frame(records: Iterable[DataclassInstance]) -> pd.DataFrame:
    """Returns runs, executions, artifacts, events, entries of the run list or column statistics as a data frame.

    Args:
      records: instances of one dataclass.

    Returns:
      A row for each record, in their order, and a column for each field; a dictionary's keys become columns such as
      `properties.span` or `metrics.auc`. Times are timestamps in UTC.
    """
    # Imported late: only notebooks need it.
    import pandas as pd

    table = pd.json_normalize([asdict(record) for record in records])
    for name in _TIMES:
        if name in table:
            table[name] = pd.to_datetime(table[name], unit="s", utc=True).dt.round("ms")
    return table
