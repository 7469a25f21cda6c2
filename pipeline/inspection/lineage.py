"""The lineage of an artifact: its ancestors and descendants, as trees for a terminal, JSON, Graphviz or Mermaid."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from components.errors import InputError
from pipeline.core.metadata.store import INPUT, OUTPUT, Artifact, Event, Execution, Store
from pipeline.core.text import plain

if TYPE_CHECKING:
    from rich.tree import Tree

OF_EARLIER_RUNS = ("baseline_model", "base_model")
"""Inputs that are models of earlier runs. They are listed but not followed: the graph would contain all runs."""
_PROPERTIES = ("span", "rows_read", "blessed", "pushed_version")
"""Properties of an artifact that its label contains."""


@dataclass
class Lineage:
    """The graph of an artifact's ancestors and descendants.

    Attributes:
      root: the artifact.
      artifacts: all artifacts of the graph, by number.
      executions: all executions of the graph, by number.
      inputs: execution → its inputs.
      outputs: execution → its outputs.
      maker: artifact → the execution that made it.
      readers: artifact → the executions that read it, of the root's descendants.
      code: execution → digest of the code that it ran, where it was recorded.
      configs: run → SHA-256 of its config, of the ancestors' runs, where it was recorded.
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
    """Returns the lineage of an artifact, with a few queries per generation.

    The graph has the execution that made an artifact; cached executions that reused it are left out.

    Args:
      store: with the artifact.
      root: the artifact's number.
      down: whether to include the descendants.

    Raises:
      InputError: there is no such artifact.
    """
    artifact = store.artifacts_by_id([root]).get(root)
    if artifact is None:
        raise InputError(f"there is no artifact {root}", "`python runner.py artifacts` lists them")
    lineage = Lineage(artifact)
    _add_ancestors(store, lineage)
    above = set(lineage.outputs)
    if down:
        _add_descendants(store, lineage)
    numbers = {event.artifact for events in lineage.inputs.values() for event in events}
    numbers |= {event.artifact for events in lineage.outputs.values() for event in events}
    lineage.artifacts = store.artifacts_by_id({root, *numbers})
    lineage.executions = {each.id: each for each in store.executions_by_id(lineage.outputs)}
    lineage.code = _code(store, lineage.outputs)
    texts = store.configs({lineage.executions[number].run for number in above})
    lineage.configs = {run: hashlib.sha256(text.encode()).hexdigest() for run, text in sorted(texts.items())}
    return lineage


def find(store: Store, reference: str) -> int:
    """Returns the number of an artifact.

    Args:
      store: with the artifact.
      reference: number of a pushed version or an artifact, `version:N`, `artifact:N`, or an artifact's folder.

    Raises:
      InputError: there is no such version or artifact.
    """
    kind, _, name = reference.rpartition(":")
    if reference.isdecimal() or kind == "version":
        pushed = store.artifacts_with("PushedModel", "pushed_version", name)
        if pushed:
            return pushed[-1].id
    if name.isdecimal() and kind in ("", "artifact"):
        return int(name)
    in_folder = store.artifacts_at(reference.rstrip("/"))
    if in_folder:
        return in_folder[-1].id
    raise InputError(
        f"expected the number of an artifact or of a pushed version, or an artifact's folder, received {reference!r}",
        "`python runner.py artifacts` lists artifacts, `python runner.py models` versions",
    )


def _add_ancestors(store: Store, lineage: Lineage) -> None:
    generation = {lineage.root.id}
    while generation:
        makers = store.makers(generation)
        lineage.maker.update(makers)
        new = set(makers.values()) - set(lineage.outputs)
        _add_executions(store, lineage, new)
        read = {
            event.artifact for number in new for event in lineage.inputs[number] if event.key not in OF_EARLIER_RUNS
        }
        generation = read - set(lineage.maker)


def _add_descendants(store: Store, lineage: Lineage) -> None:
    generation = {lineage.root.id}
    visited: set[int] = set()
    comparisons: list[Event] = []
    while generation:
        visited |= generation
        events = store.readers(generation)
        for event in events:
            lineage.readers.setdefault(event.artifact, []).append(event.execution)
        comparisons += [event for event in events if event.key in OF_EARLIER_RUNS]
        new = {event.execution for event in events if event.key not in OF_EARLIER_RUNS}
        _add_executions(store, lineage, new)
        made = {event.artifact for number in new for event in lineage.outputs[number]}
        lineage.maker.update({event.artifact: number for number in new for event in lineage.outputs[number]})
        generation = made - visited
    # Other inputs and outputs of an execution that used it only as the model of an earlier run are no descendants.
    for event in comparisons:
        if event.execution not in lineage.outputs:
            lineage.inputs[event.execution], lineage.outputs[event.execution] = [event], []


def _code(store: Store, executions: Iterable[int]) -> dict[int, str]:
    digests = {}
    for number, parameters in store.parameters(executions).items():
        custom = str(parameters.get("custom_config", ""))
        if custom.startswith("{") and isinstance(digest := json.loads(custom).get("code"), str):
            digests[number] = digest
    return digests


def _add_executions(store: Store, lineage: Lineage, executions: Iterable[int]) -> None:
    new = set(executions) - set(lineage.outputs)
    for number in new:
        lineage.inputs[number], lineage.outputs[number] = [], []
    for event in store.events(new):
        if event.kind == INPUT:
            lineage.inputs[event.execution].append(event)
        elif event.kind == OUTPUT:
            lineage.outputs[event.execution].append(event)


def trees(lineage: Lineage) -> list[Tree]:
    """Returns two trees: from the artifact up to the data, and down to its descendants."""
    from rich.tree import Tree

    root = lineage.root
    up = Tree(f"{_artifact_label(root)}\n{plain(root.uri, 1000)}\nmade from:", highlight=False)
    _add_upstream(lineage, root.id, up, set())
    for run, digest in lineage.configs.items():
        up.add(f"config of run {plain(run)}: {digest[:12]}")
    down = Tree("used by:" if root.id in lineage.readers else "used by nothing", highlight=False)
    _add_downstream(lineage, root.id, down, {root.id})
    return [up, down]


def to_json(lineage: Lineage) -> str:
    """Returns the graph as one JSON object: root, artifacts, executions, and the edges between them."""
    graph = {
        "root": lineage.root.id,
        "artifacts": [asdict(each) for each in lineage.artifacts.values()],
        "executions": [asdict(each) for each in lineage.executions.values()],
        "code": lineage.code,
        "configs": lineage.configs,
        "edges": [
            {"execution": event.execution, "artifact": event.artifact, "key": event.key, "kind": kind}
            for event, kind in _edges(lineage)
        ],
    }
    return json.dumps(graph) + "\n"


def to_dot(lineage: Lineage) -> str:
    """Returns the graph in the DOT language of Graphviz."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    for number, label, is_root, is_artifact in _nodes(lineage):
        shape = "ellipse" if is_artifact else "box"
        lines.append(f"  {number} [label={json.dumps(label)}, shape={shape}{', penwidth=3' if is_root else ''}];")
    for source, target, key, dashed in _arrows(lineage):
        lines.append(f"  {source} -> {target} [label={json.dumps(plain(key))}{', style=dashed' if dashed else ''}];")
    return "\n".join([*lines, "}"]) + "\n"


def to_mermaid(lineage: Lineage) -> str:
    """Returns the graph as a flowchart of Mermaid."""
    lines = ["flowchart LR"]
    for number, label, is_root, is_artifact in _nodes(lineage):
        opening, closing = ("([", "])") if is_artifact else ("[", "]")
        lines.append(f'  {number}{opening}"{_entities(label)}"{closing}')
        if is_root:
            lines.append(f"  style {number} stroke-width:3px")
    for source, target, key, dashed in _arrows(lineage):
        lines.append(f'  {source} {"-.->" if dashed else "-->"}|"{_entities(plain(key))}"| {target}')
    return "\n".join(lines) + "\n"


def _add_upstream(lineage: Lineage, artifact: int, tree: Tree, added: set[int]) -> None:
    maker = lineage.maker.get(artifact)
    if maker is None:
        tree.add("(its maker was not recorded)")
        return
    branch = tree.add(_execution_label(lineage, lineage.executions[maker]))
    if maker in added:
        branch.add("(above)")
        return
    added.add(maker)
    for event in lineage.inputs[maker]:
        leaf = branch.add(f"{plain(event.key)}: {_artifact_label(lineage.artifacts[event.artifact])}")
        if event.key in OF_EARLIER_RUNS:
            leaf.add(f"(of an earlier run: lineage artifact:{event.artifact})")
        else:
            _add_upstream(lineage, event.artifact, leaf, added)


def _add_downstream(lineage: Lineage, artifact: int, tree: Tree, added: set[int]) -> None:
    for number in lineage.readers.get(artifact, ()):
        keys = [event.key for event in lineage.inputs[number] if event.artifact == artifact]
        branch = tree.add(f"{', '.join(map(plain, keys))} of {_execution_label(lineage, lineage.executions[number])}")
        if set(keys) <= set(OF_EARLIER_RUNS):
            continue
        for event in lineage.outputs[number]:
            leaf = branch.add(f"{plain(event.key)}: {_artifact_label(lineage.artifacts[event.artifact])}")
            if event.artifact in added:
                leaf.add("(above)")
            else:
                added.add(event.artifact)
                _add_downstream(lineage, event.artifact, leaf, added)


def _artifact_label(artifact: Artifact) -> str:
    notes = [
        f"{name.replace('_', ' ')} {plain(artifact.properties[name])}"
        for name in _PROPERTIES
        if name in artifact.properties
    ]
    if artifact.state != "LIVE":
        notes.append(artifact.state.lower())
    return f"{plain(artifact.type)} {artifact.id}" + (f" ({', '.join(notes)})" if notes else "")


def _execution_label(lineage: Lineage, execution: Execution) -> str:
    code = lineage.code.get(execution.id)
    notes = f"execution {execution.id}" + (f", code {code}" if code else "")
    return f"{plain(execution.node or execution.type)}, run {plain(execution.run or 'none')} ({notes})"


def _nodes(lineage: Lineage) -> list[tuple[str, str, bool, bool]]:
    """Returns each node's name, its label, whether it is the root, and whether it is an artifact."""
    return [
        *(
            (f"a{each.id}", _artifact_label(each), each.id == lineage.root.id, True)
            for each in lineage.artifacts.values()
        ),
        *((f"e{each.id}", _execution_label(lineage, each), False, False) for each in lineage.executions.values()),
    ]


def _arrows(lineage: Lineage) -> list[tuple[str, str, str, bool]]:
    """Returns source, destination, key, and whether the source is a model of an earlier run."""
    return [
        (f"a{event.artifact}", f"e{event.execution}", event.key, event.key in OF_EARLIER_RUNS)
        if kind == "input"
        else (f"e{event.execution}", f"a{event.artifact}", event.key, False)
        for event, kind in _edges(lineage)
    ]


def _edges(lineage: Lineage) -> list[tuple[Event, str]]:
    inputs = [(event, "input") for events in lineage.inputs.values() for event in events]
    return inputs + [(event, "output") for events in lineage.outputs.values() for event in events]


def _entities(text: str) -> str:
    """Escapes a text in quotation marks for Mermaid, which supports only HTML entities."""
    return "".join(char if char.isalnum() or char in " ,.:/-_()" else f"#{ord(char)};" for char in text)
