"""The edges of a run's lineage graph, to compare the graphs of different stores."""

from __future__ import annotations

from pipeline.core.metadata.store import INPUT, OUTPUT, Store


def edges(store: Store, run: str) -> set[tuple[str, str, str]]:
    """Return the edges of a run: (producing node, artifact type, consuming node)."""
    executions = {execution.id: execution.node for execution in store.executions(run)}
    events = store.events(executions)
    makers = {event.artifact: executions[event.execution] for event in events if event.kind == OUTPUT}
    artifacts = store.artifacts_by_id(makers)
    input_events = [event for event in events if event.kind == INPUT and event.artifact in makers]
    return {
        (makers[event.artifact], artifacts[event.artifact].type, executions[event.execution]) for event in input_events
    }
