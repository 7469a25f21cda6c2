"""A whole store as text: a JSON object a line, or events of OpenLineage (https://openlineage.io, spec 2-0-2)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from pipeline.metadata.reasons import flat
from pipeline.metadata.store import INPUT, OUTPUT, Artifact, Event, Execution, Run, Store

_PAGE = 200
_KINDS = {INPUT: "input", OUTPUT: "output"}
_PRODUCER = "urn:tfx-pipeline"
_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PARENT = "https://openlineage.io/spec/facets/1-0-0/ParentRunFacet.json#/$defs/ParentRunFacet"
_STATES = {"COMPLETE": "COMPLETE", "CACHED": "COMPLETE", "FAILED": "FAIL", "CANCELED": "ABORT"}


def lines(store: Store, pipeline: str | None = None) -> Iterator[dict[str, Any]]:
    """All that is in a store, or what one pipeline has made of it, run by run, oldest first.

    Yields:
      Objects with a `kind`: `artifact` (before the first run that knows it), `run` (with its config, as JSON), and the
      run's `execution`s, each with its parameters and events (the artifact, its key, `input` or `output`, or the number
      that ML Metadata has for others).
    """
    told: set[int] = set()
    for runs in _pages(store, pipeline):
        configs = store.configs(run.name for run in runs)
        executions, events, parameters, artifacts = _whole(store, runs, told)
        for artifact in artifacts.values():
            yield {"kind": "artifact", **asdict(artifact)}
        told |= set(artifacts)
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
    """A RunEvent of OpenLineage for each execution that has ended, oldest first; a data set is an artifact's folder."""
    for runs in _pages(store, pipeline):
        executions, events, parameters, artifacts = _whole(store, runs, set())
        for run in runs:
            for execution in executions[run.name]:
                if execution.state in _STATES:
                    known = [(event, artifacts[event.artifact]) for event in events.get(execution.id, ())]
                    yield _run_event(run, execution, known, parameters[execution.id])


def _pages(store: Store, pipeline: str | None) -> Iterator[list[Run]]:
    """The runs, oldest first, a few hundred at a time: memory stays flat."""
    runs = store.runs(pipeline)[::-1]
    for start in range(0, len(runs), _PAGE):
        yield runs[start : start + _PAGE]


def _whole(
    store: Store, runs: list[Run], told: set[int]
) -> tuple[dict[str, list[Execution]], dict[int, list[Event]], dict[int, dict[str, Any]], dict[int, Artifact]]:
    """Run → executions, execution → events and → parameters, and the artifacts that were not told before."""
    executions: dict[str, list[Execution]] = {run.name: [] for run in runs}
    for execution in store.executions(*executions):
        executions[execution.run].append(execution)
    numbers = [each.id for several in executions.values() for each in several]
    events: dict[int, list[Event]] = {}
    for event in store.events(numbers):
        events.setdefault(event.execution, []).append(event)
    artifacts = store.artifacts_by_id(
        event.artifact for several in events.values() for event in several if event.artifact not in told
    )
    return executions, events, store.parameters(numbers), artifacts


def _run_event(
    run: Run, execution: Execution, known: list[tuple[Event, Artifact]], parameters: dict[str, Any]
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
                    "parameters": dict(each for name, given in parameters.items() for each in flat(given, name)),
                },
            },
        },
        "job": {"namespace": run.pipeline, "name": f"{run.pipeline}.{execution.node}"},
        "inputs": [_data_set(event, artifact) for event, artifact in known if event.kind == INPUT],
        "outputs": [_data_set(event, artifact) for event, artifact in known if event.kind == OUTPUT],
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
    """The same names give the same id, so that events that are sent twice are known as the same."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join((_PRODUCER, *names))))
