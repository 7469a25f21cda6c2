"""Where an artifact comes from, and what was made of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from components.errors import InputError
from pipeline.metadata.store import INPUT, OUTPUT, Artifact, Event, Execution, Store

BESIDE = ("baseline_model", "base_model")
"""Inputs that lead to the models of earlier runs. They are named, but not followed: all runs would hang together."""


@dataclass
class Lineage:
    """An artifact's ancestors and descendants, as a graph.

    Attributes:
      root: the artifact.
      artifacts: all of the graph's, by number.
      executions: the same.
      inputs: execution → what it read.
      outputs: execution → what it made.
      maker: artifact → the execution that made it.
      readers: artifact → the executions that read it, of those below the root.
      code: execution → digest of the code that it ran, where one was written down.
      configs: run → SHA-256 of its config, of the runs above the root that have one.
    """

    root: Artifact
    artifacts: dict[int, Artifact] = field(default_factory=dict)
    executions: dict[int, Execution] = field(default_factory=dict)
    inputs: dict[int, list[Event]] = field(default_factory=dict)
    outputs: dict[int, list[Event]] = field(default_factory=dict)
    maker: dict[int, int] = field(default_factory=dict)
    readers: dict[int, list[int]] = field(default_factory=dict)
    code: dict[int, str] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)


def trace(store: Store, root: int, down: bool = True) -> Lineage:
    """The lineage of an artifact: a handful of questions for each generation.

    What was taken from the cache was made once, by the execution that is named; those that took it are left out.

    Args:
      store: where it is known.
      root: its number.
      down: whether what was made of it is wanted, too.

    Raises:
      InputError: there is no such artifact.
    """
    found = store.artifacts_by_id([root]).get(root)
    if found is None:
        raise InputError(f"there is no artifact {root}", "`python runner.py artifacts` lists them")
    lineage = Lineage(found)
    _up(store, lineage)
    above = set(lineage.outputs)
    if down:
        _down(store, lineage)
    numbers = {event.artifact for several in lineage.inputs.values() for event in several}
    numbers |= {event.artifact for several in lineage.outputs.values() for event in several}
    lineage.artifacts = store.artifacts_by_id({root, *numbers})
    lineage.executions = {each.id: each for each in store.executions_by_id(lineage.outputs)}
    lineage.code = _code(store, lineage.outputs)
    texts = store.configs({lineage.executions[number].run for number in above})
    lineage.configs = {run: hashlib.sha256(text.encode()).hexdigest() for run, text in sorted(texts.items())}
    return lineage


def find(store: Store, told: str) -> int:
    """The artifact that is meant by its number, by a pushed version's, or by its folder.

    Raises:
      InputError: nothing is called so.
    """
    kind, _, name = told.rpartition(":")
    if told.isdecimal() or kind == "version":
        pushed = store.artifacts_with("PushedModel", "pushed_version", name)
        if pushed:
            return pushed[-1].id
    if name.isdecimal() and kind in ("", "artifact"):
        return int(name)
    found = store.artifacts_at(told.rstrip("/"))
    if found:
        return found[-1].id
    raise InputError(
        f"expected the number of an artifact or of a pushed version, or an artifact's folder, received {told!r}",
        "`python runner.py artifacts` lists artifacts, `python runner.py models` versions",
    )


def _up(store: Store, lineage: Lineage) -> None:
    wanted = {lineage.root.id}
    while wanted:
        makers = store.makers(wanted)
        lineage.maker.update(makers)
        new = set(makers.values()) - set(lineage.outputs)
        _enter(store, lineage, new)
        read = {event.artifact for number in new for event in lineage.inputs[number] if event.key not in BESIDE}
        wanted = read - set(lineage.maker)


def _down(store: Store, lineage: Lineage) -> None:
    wanted = {lineage.root.id}
    seen: set[int] = set()
    beside: list[Event] = []
    while wanted:
        seen |= wanted
        events = store.readers(wanted)
        for event in events:
            lineage.readers.setdefault(event.artifact, []).append(event.execution)
        beside += [event for event in events if event.key in BESIDE]
        new = {event.execution for event in events if event.key not in BESIDE}
        _enter(store, lineage, new)
        made = {event.artifact for number in new for event in lineage.outputs[number]}
        lineage.maker.update({event.artifact: number for number in new for event in lineage.outputs[number]})
        wanted = made - seen
    # Of who was only compared with it, what else they read and made is not its own.
    for event in beside:
        if event.execution not in lineage.outputs:
            lineage.inputs[event.execution], lineage.outputs[event.execution] = [event], []


def _code(store: Store, executions: Iterable[int]) -> dict[int, str]:
    found = {}
    for number, parameters in store.parameters(executions).items():
        custom = str(parameters.get("custom_config", ""))
        if custom.startswith("{") and isinstance(told := json.loads(custom).get("code"), str):
            found[number] = told
    return found


def _enter(store: Store, lineage: Lineage, executions: Iterable[int]) -> None:
    new = set(executions) - set(lineage.outputs)
    for number in new:
        lineage.inputs[number], lineage.outputs[number] = [], []
    for event in store.events(new):
        if event.kind == INPUT:
            lineage.inputs[event.execution].append(event)
        elif event.kind == OUTPUT:
            lineage.outputs[event.execution].append(event)
