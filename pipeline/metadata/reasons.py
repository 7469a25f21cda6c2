"""Why a node ran, rather than take what an earlier run had made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.errors import InputError
from components.names import did_you_mean
from pipeline.metadata.store import INPUT, OUTPUT, Artifact, Execution, Run, Store

_COMPARED = 20
"""So many earlier executions are looked at; the one that differs least is named."""
_OWN = "__"
"""How the parameters begin that TFX keeps for itself."""


@dataclass(frozen=True)
class Difference:
    """One thing in which two executions of a node differ.

    Attributes:
      kind: `input` or `parameter`.
      name: key of the input; name of the parameter, and where in it, such as `plan.model.hidden.0`.
      before: what the earlier execution had; None where it had nothing there.
      now: what the later one has.
    """

    kind: str
    name: str
    before: str | None
    now: str | None


@dataclass(frozen=True)
class Reason:
    """Why a node was not cached, or that it was.

    Attributes:
      execution: of the node in the run.
      earlier: the one that differs least, if it has run to its end before.
      differences: in what.
      gone: outputs of the earlier one that can no longer be used.
      after: nodes of the same run that have made what was new to it.
    """

    execution: Execution
    earlier: Execution | None
    differences: tuple[Difference, ...] = ()
    gone: tuple[Artifact, ...] = ()
    after: tuple[str, ...] = ()


def why_not_cached(store: Store, run: Run, node: str) -> Reason:
    """Holds a node's execution against the earlier ones.

    Raises:
      InputError: the run has no such node.
    """
    execution = store.execution(run.name, node)
    if execution is None:
        nodes = sorted({each.node for each in store.executions(run.name)})
        raise InputError(
            f"run {run.name} has no node {node!r}{did_you_mean(node, nodes)}", f"it has {', '.join(nodes) or 'none'}"
        )
    if execution.state == "CACHED":
        return Reason(execution, None)
    earlier = store.completed(run.pipeline, node, execution.id, _COMPARED)
    if not earlier:
        return Reason(execution, None)
    told = _told(store, [execution, *earlier])
    compared = [(differences(told[each.id], told[execution.id]), each) for each in earlier]
    found, nearest = min(compared, key=lambda each: len(each[0]))
    events = store.events([execution.id, nearest.id])
    outputs = [event.artifact for event in events if event.execution == nearest.id and event.kind == OUTPUT]
    gone = [each for each in store.artifacts_by_id(outputs).values() if each.state != "LIVE"]
    changed = {each.name for each in found if each.kind == "input"}
    new = [event.artifact for event in events if event.execution == execution.id and event.key in changed]
    makers = {each.node for each in store.executions_by_id(store.makers(new).values()) if each.run == run.name}
    return Reason(execution, nearest, found, tuple(gone), tuple(sorted(makers)))


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Difference, ...]:
    """In what two executions differ: `input:` and `parameter:` names → values, of both."""
    names = [name for name in dict.fromkeys((*now, *before)) if before.get(name) != now.get(name)]
    return tuple(
        Difference(kind, rest, before.get(name), now.get(name))
        for name in names
        for kind, _, rest in [name.partition(":")]
    )


def _told(store: Store, executions: list[Execution]) -> dict[int, dict[str, str]]:
    """Execution → its inputs and parameters, each under one name."""
    told: dict[int, dict[str, str]] = {each.id: {} for each in executions}
    read: dict[tuple[int, str], list[int]] = {}
    for event in store.events(told):
        if event.kind == INPUT:
            read.setdefault((event.execution, event.key), []).append(event.artifact)
    artifacts = store.artifacts_by_id(number for numbers in read.values() for number in numbers)
    for (execution, key), numbers in read.items():
        told[execution][f"input:{key}"] = ", ".join(f"{artifacts[each].type} {each}" for each in sorted(numbers))
    for execution, parameters in store.parameters(told).items():
        for name, value in flat({name: value for name, value in parameters.items() if not name.startswith(_OWN)}):
            told[execution][f"parameter:{name}"] = value
    return told


def flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """What a structure holds: `a.b.0` → its value as text. JSON within a text is taken apart, too."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except ValueError:
            return [(name, value)]
    below = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) and value else None
    )
    if below is None or not value:
        return [(name, value if isinstance(value, str) else json.dumps(value))]
    return [each for key, inner in below for each in flat(inner, f"{name}.{key}" if name else str(key))]
