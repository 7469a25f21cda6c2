"""Explains why a node was executed, although an earlier execution of it could have been reused from the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from components.base.errors import InputError
from components.base.names import did_you_mean
from pipeline.core.metadata.store import INPUT, OUTPUT, Artifact, Execution, Run, Store
from pipeline.core.text import flatten_json

_MOST_COMPARED = 20
"""Number of earlier executions to compare with. The execution that differs least is reported."""
_INTERNAL_PREFIX = "__"
"""Prefix of TFX's internal parameters, which are not compared."""


@dataclass(frozen=True)
class Difference:
    """An input or parameter that differs between two executions of a node.

    Attributes:
      kind: `input` or `parameter`.
      name: Key of the input, or name of the parameter. For a nested parameter the name includes the path to the value,
        for example `plan.model.hidden.0`.
      before: Value in the earlier execution. None if the earlier execution lacks it.
      now: Value in the later execution. None if the later execution lacks it.
    """

    kind: str
    name: str
    before: str | None
    now: str | None


@dataclass(frozen=True)
class Reason:
    """The reason why a node was not cached.

    Attributes:
      execution: Execution of the node in the run. Its state is CACHED if the node was cached after all.
      earlier: Earlier execution that differs least. None if no earlier execution succeeded.
      differences: Differences between the two executions.
      gone: Outputs of the earlier execution that were deleted or are otherwise unusable.
      after: Nodes of the same run that produced the changed inputs, in alphabetical order.
    """

    execution: Execution
    earlier: Execution | None
    differences: tuple[Difference, ...] = ()
    gone: tuple[Artifact, ...] = ()
    after: tuple[str, ...] = ()


def why_not_cached(store: Store, run: Run, node: str) -> Reason:
    """Compare a node's execution with the earlier executions of the same node.

    Args:
      store: The store that holds the run.
      run: The run.
      node: ID of the node.

    Raises:
      InputError: The run does not have such a node.
    """
    execution = store.execution(run.name, node)
    if execution is None:
        nodes = sorted({execution.node for execution in store.executions(run.name)})
        raise InputError(
            f"run {run.name} has no node {node!r}{did_you_mean(node, nodes)}", f"it has {', '.join(nodes) or 'none'}"
        )
    if execution.state == "CACHED":
        return Reason(execution, None)
    earlier_executions = store.list_completed(run.pipeline, node, execution.id, _MOST_COMPARED)
    if not earlier_executions:
        return Reason(execution, None)
    values = _read_inputs_and_parameters(store, [execution, *earlier_executions])
    candidates = [(_compare(values[earlier.id], values[execution.id]), earlier) for earlier in earlier_executions]
    differences, nearest = min(candidates, key=lambda candidate: len(candidate[0]))
    events = store.events([execution.id, nearest.id])
    outputs = [event.artifact for event in events if event.execution == nearest.id and event.kind == OUTPUT]
    unusable = [artifact for artifact in store.artifacts_by_id(outputs).values() if artifact.state != "LIVE"]
    changed_keys = {difference.name for difference in differences if difference.kind == "input"}
    changed_inputs = [
        event.artifact for event in events if event.execution == execution.id and event.key in changed_keys
    ]
    producers = {
        producer.node
        for producer in store.executions_by_id(store.makers(changed_inputs).values())
        if producer.run == run.name
    }
    return Reason(execution, nearest, differences, tuple(unusable), tuple(sorted(producers)))


def _compare(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[Difference, ...]:
    """Return the differences between the inputs and parameters of two executions.

    Args:
      before: Values of the earlier execution; the keys are `input:NAME` and `parameter:NAME`.
      now: Values of the later execution, with the same kinds of keys.
    """
    keys = [key for key in dict.fromkeys((*now, *before)) if before.get(key) != now.get(key)]
    return tuple(
        Difference(kind, name, before.get(key), now.get(key)) for key in keys for kind, _, name in [key.partition(":")]
    )


def _read_inputs_and_parameters(store: Store, executions: list[Execution]) -> dict[int, dict[str, str]]:
    """Return the values of executions, by execution ID and by key. The keys are `input:NAME` and `parameter:NAME`."""
    values: dict[int, dict[str, str]] = {execution.id: {} for execution in executions}
    inputs: dict[tuple[int, str], list[int]] = {}
    for event in store.events(values):
        if event.kind == INPUT:
            inputs.setdefault((event.execution, event.key), []).append(event.artifact)
    artifacts = store.artifacts_by_id(number for numbers in inputs.values() for number in numbers)
    for (execution, key), numbers in inputs.items():
        values[execution][f"input:{key}"] = ", ".join(
            f"{artifacts[number].type} {number}" for number in sorted(numbers)
        )
    for execution, parameters in store.parameters(values).items():
        for name, value in flatten_json(
            {name: value for name, value in parameters.items() if not name.startswith(_INTERNAL_PREFIX)}
        ):
            values[execution][f"parameter:{name}"] = value
    return values
