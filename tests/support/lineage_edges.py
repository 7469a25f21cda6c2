"""The lineage of a run as what went from where to where, so that those of different stores can be held together."""

from __future__ import annotations

from pipeline.core.metadata.store import INPUT, OUTPUT, Store


def edges(store: Store, run: str) -> set[tuple[str, str, str]]:
    """Return the node that has made an artifact in this run, the artifact's type, and a node that has taken it."""
    executions = {each.id: each.node for each in store.executions(run)}
    events = store.events(executions)
    makers = {each.artifact: executions[each.execution] for each in events if each.kind == OUTPUT}
    artifacts = store.artifacts_by_id(makers)
    taken = [each for each in events if each.kind == INPUT and each.artifact in makers]
    return {(makers[each.artifact], artifacts[each.artifact].type, executions[each.execution]) for each in taken}
