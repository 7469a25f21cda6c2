"""The reasons why a node was executed instead of taking an earlier execution's outputs from the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from components.errors import InputError
from components.names import did_you_mean
from pipeline.core.metadata.store import INPUT, OUTPUT, Artifact, Execution, Run, Store
from pipeline.core.text import flatten_json

_COMPARED = 20
"""Number of earlier executions to compare with; the one that differs least is reported."""
_INTERNAL = "__"
"""The prefix of TFX's internal parameters."""


@dataclass(frozen=True)
class Difference:
    """An input or a parameter in which two executions of a node differ.

    Attributes:
      kind: `input` or `parameter`.
      name: key of the input; name of the parameter with the path in it, such as `plan.model.hidden.0`.
      before: value of the earlier execution; None if it has none.
      now: value of the later execution; None if it has none.
    """

    kind: str
    name: str
    before: str | None
    now: str | None


@dataclass(frozen=True)
class Reason:
    """Why a node was not cached.

    Attributes:
      execution: of the node in the run; its state is CACHED if the node was cached.
      earlier: the earlier execution that differs least; None if none has succeeded.
      differences: between the two executions.
      gone: outputs of the earlier execution that can no longer be used.
      after: nodes of the same run whose outputs are among the changed inputs.
    """

    execution: Execution
    earlier: Execution | None
    differences: tuple[Difference, ...] = ()
    gone: tuple[Artifact, ...] = ()
    after: tuple[str, ...] = ()


def why_not_cached(store: Store, run: Run, node: str) -> Reason:
    """Compares a node's execution with the earlier executions of the node.

    Args:
      store: with the run.
      run: the run.
      node: the node's id.

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
    values = _inputs_and_parameters(store, [execution, *earlier])
    compared = [(differences(values[each.id], values[execution.id]), each) for each in earlier]
    fewest, nearest = min(compared, key=lambda pair: len(pair[0]))
    events = store.events([execution.id, nearest.id])
    outputs = [event.artifact for event in events if event.execution == nearest.id and event.kind == OUTPUT]
    gone = [each for each in store.artifacts_by_id(outputs).values() if each.state != "LIVE"]
    changed = {each.name for each in fewest if each.kind == "input"}
    new = [event.artifact for event in events if event.execution == execution.id and event.key in changed]
    makers = {each.node for each in store.executions_by_id(store.makers(new).values()) if each.run == run.name}
    return Reason(execution, nearest, fewest, tuple(gone), tuple(sorted(makers)))


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[Difference, ...]:
    """Returns the differences between two executions.

    Args:
      before: `input:NAME` or `parameter:NAME` → value, of the earlier execution.
      now: the same of the later one.
    """
    names = [name for name in dict.fromkeys((*now, *before)) if before.get(name) != now.get(name)]
    return tuple(
        Difference(kind, rest, before.get(name), now.get(name))
        for name in names
        for kind, _, rest in [name.partition(":")]
    )


def _inputs_and_parameters(store: Store, executions: list[Execution]) -> dict[int, dict[str, str]]:
    """Returns execution → `input:NAME` or `parameter:NAME` → value."""
    values: dict[int, dict[str, str]] = {each.id: {} for each in executions}
    inputs: dict[tuple[int, str], list[int]] = {}
    for event in store.events(values):
        if event.kind == INPUT:
            inputs.setdefault((event.execution, event.key), []).append(event.artifact)
    artifacts = store.artifacts_by_id(number for numbers in inputs.values() for number in numbers)
    for (execution, key), numbers in inputs.items():
        values[execution][f"input:{key}"] = ", ".join(f"{artifacts[each].type} {each}" for each in sorted(numbers))
    for execution, parameters in store.parameters(values).items():
        for name, value in flatten_json(
            {name: value for name, value in parameters.items() if not name.startswith(_INTERNAL)}
        ):
            values[execution][f"parameter:{name}"] = value
    return values
