"""Traces the ancestors and descendants of an artifact, and formats them as trees, JSON, Graphviz or Mermaid."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from components.base.errors import InputError
from pipeline.core.metadata.store import INPUT, OUTPUT, Artifact, Event, Execution, Store
from pipeline.core.text import plain

if TYPE_CHECKING:
    from rich.tree import Tree

OF_EARLIER_RUNS = ("baseline_model", "base_model")
"""Keys of inputs that are models of earlier runs.

The graph contains these inputs but does not follow them, because it would then grow to all earlier runs.
"""
_LABEL_PROPERTIES = ("span", "rows_read", "blessed", "pushed_version", "approved_by")
"""Properties that the label of an artifact shows."""


@dataclass
class Lineage:
    """The graph of an artifact's ancestors and descendants.

    Attributes:
      root: The artifact whose lineage was traced.
      artifacts: All artifacts of the graph by ID.
      executions: All executions of the graph by ID.
      inputs: Input events by execution.
      outputs: Output events by execution.
      maker: ID of the execution that produced an artifact, by artifact.
      readers: IDs of the executions that read an artifact, by artifact. Only the root and its descendants have readers.
      code: Digest of the code that an execution ran, by execution. Executions without a recorded digest are missing.
      configs: SHA-256 of the configs of the ancestors' runs, by run. Runs without a recorded config are missing.
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
    """Trace the lineage of an artifact, with a few queries per generation.

    The graph contains the execution that produced an artifact, but not the cached executions that reused it.

    Args:
      store: The store that holds the artifact.
      root: ID of the artifact.
      down: Whether to include the descendants.

    Raises:
      InputError: The artifact does not exist.
    """
    artifact = store.artifacts_by_id([root]).get(root)
    if artifact is None:
        raise InputError(f"there is no artifact {root}", "list the artifacts with `python runner.py store artifacts`")
    lineage = Lineage(artifact)
    _add_ancestors(store, lineage)
    ancestor_executions = set(lineage.outputs)
    if down:
        _add_descendants(store, lineage)
    artifact_ids = {event.artifact for events in lineage.inputs.values() for event in events}
    artifact_ids |= {event.artifact for events in lineage.outputs.values() for event in events}
    lineage.artifacts = store.artifacts_by_id({root, *artifact_ids})
    lineage.executions = {execution.id: execution for execution in store.executions_by_id(lineage.outputs)}
    lineage.code = _read_code_digests(store, lineage.outputs)
    configs = store.configs({lineage.executions[number].run for number in ancestor_executions})
    lineage.configs = {run: hashlib.sha256(text.encode()).hexdigest() for run, text in sorted(configs.items())}
    return lineage


def find(store: Store, reference: str) -> int:
    """Return the ID of the artifact that a reference stands for.

    Args:
      store: The store that holds the artifact.
      reference: Number of a pushed version, or else ID of an artifact; `version:N` or `artifact:N`, if both exist; or
        folder of an artifact.

    Raises:
      InputError: The version or the artifact does not exist.
    """
    kind, _, name = reference.rpartition(":")
    if reference.isdecimal() or kind == "version":
        pushed = store.artifacts_with("PushedModel", "pushed_version", name)
        if pushed:
            return pushed[-1].id
    if name.isdecimal() and kind in ("", "artifact"):
        return int(name)
    artifacts = store.artifacts_at(reference.rstrip("/"))
    if artifacts:
        return artifacts[-1].id
    raise InputError(
        f"expected the number of an artifact or of a pushed version, or an artifact's folder, received {reference!r}",
        "list artifacts with `python runner.py store artifacts`, or versions with `python runner.py models`",
    )


def _add_ancestors(store: Store, lineage: Lineage) -> None:
    generation = {lineage.root.id}
    while generation:
        makers = store.makers(generation)
        lineage.maker.update(makers)
        new_executions = set(makers.values()) - set(lineage.outputs)
        _add_executions(store, lineage, new_executions)
        inputs = {
            event.artifact
            for execution in new_executions
            for event in lineage.inputs[execution]
            if event.key not in OF_EARLIER_RUNS
        }
        generation = inputs - set(lineage.maker)


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
        new_executions = {event.execution for event in events if event.key not in OF_EARLIER_RUNS}
        _add_executions(store, lineage, new_executions)
        makers = {event.artifact: execution for execution in new_executions for event in lineage.outputs[execution]}
        lineage.maker.update(makers)
        generation = set(makers) - visited
    # An execution that read a model only as an earlier run's model is listed as its reader. Its outputs do not descend
    # from the model, so the execution keeps only this input.
    for event in comparisons:
        if event.execution not in lineage.outputs:
            lineage.inputs[event.execution], lineage.outputs[event.execution] = [event], []


def _read_code_digests(store: Store, executions: Iterable[int]) -> dict[int, str]:
    digests = {}
    for execution, parameters in store.parameters(executions).items():
        custom_config = str(parameters.get("custom_config", ""))
        if custom_config.startswith("{") and isinstance(digest := json.loads(custom_config).get("code"), str):
            digests[execution] = digest
    return digests


def _add_executions(store: Store, lineage: Lineage, executions: Iterable[int]) -> None:
    new_executions = set(executions) - set(lineage.outputs)
    for execution in new_executions:
        lineage.inputs[execution], lineage.outputs[execution] = [], []
    for event in store.events(new_executions):
        if event.kind == INPUT:
            lineage.inputs[event.execution].append(event)
        elif event.kind == OUTPUT:
            lineage.outputs[event.execution].append(event)


def trees(lineage: Lineage) -> list[Tree]:
    """Return two trees for the terminal: from the artifact up to the data, and from the artifact to its descendants."""
    from rich.tree import Tree

    root = lineage.root
    up = Tree(f"{_format_artifact(root)}\n{plain(root.uri, 1000)}\nmade from:", highlight=False)
    _add_upstream(lineage, root.id, up, set())
    for run, digest in lineage.configs.items():
        up.add(f"config of run {plain(run)}: {digest[:12]}")
    down = Tree("used by:" if root.id in lineage.readers else "used by nothing", highlight=False)
    _add_downstream(lineage, root.id, down, {root.id})
    return [up, down]


def to_json(lineage: Lineage) -> str:
    """Return the graph as one JSON object with the root, the artifacts, the executions, and the edges between them."""
    graph = {
        "root": lineage.root.id,
        "artifacts": [asdict(artifact) for artifact in lineage.artifacts.values()],
        "executions": [asdict(execution) for execution in lineage.executions.values()],
        "code": lineage.code,
        "configs": lineage.configs,
        "edges": [
            {"execution": event.execution, "artifact": event.artifact, "key": event.key, "kind": kind}
            for event, kind in _list_edges(lineage)
        ],
    }
    return json.dumps(graph) + "\n"


def to_dot(lineage: Lineage) -> str:
    """Return the graph in the DOT language of Graphviz."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    for number, label, is_root, is_artifact in _list_nodes(lineage):
        shape = "ellipse" if is_artifact else "box"
        lines.append(f"  {number} [label={json.dumps(label)}, shape={shape}{', penwidth=3' if is_root else ''}];")
    for source, target, key, dashed in _list_arrows(lineage):
        lines.append(f"  {source} -> {target} [label={json.dumps(plain(key))}{', style=dashed' if dashed else ''}];")
    return "\n".join([*lines, "}"]) + "\n"


def to_mermaid(lineage: Lineage) -> str:
    """Return the graph as a Mermaid flowchart."""
    lines = ["flowchart LR"]
    for number, label, is_root, is_artifact in _list_nodes(lineage):
        opening, closing = ("([", "])") if is_artifact else ("[", "]")
        lines.append(f'  {number}{opening}"{_escape_for_mermaid(label)}"{closing}')
        if is_root:
            lines.append(f"  style {number} stroke-width:3px")
    for source, target, key, dashed in _list_arrows(lineage):
        lines.append(f'  {source} {"-.->" if dashed else "-->"}|"{_escape_for_mermaid(plain(key))}"| {target}')
    return "\n".join(lines) + "\n"


def _add_upstream(lineage: Lineage, artifact: int, tree: Tree, added: set[int]) -> None:
    maker = lineage.maker.get(artifact)
    if maker is None:
        tree.add("(its maker was not recorded)")
        return
    branch = tree.add(_format_execution(lineage, lineage.executions[maker]))
    if maker in added:
        branch.add("(above)")
        return
    added.add(maker)
    for event in lineage.inputs[maker]:
        leaf = branch.add(f"{plain(event.key)}: {_format_artifact(lineage.artifacts[event.artifact])}")
        if event.key in OF_EARLIER_RUNS:
            leaf.add(f"(of an earlier run: lineage artifact:{event.artifact})")
        else:
            _add_upstream(lineage, event.artifact, leaf, added)


def _add_downstream(lineage: Lineage, artifact: int, tree: Tree, added: set[int]) -> None:
    for number in lineage.readers.get(artifact, ()):
        keys = [event.key for event in lineage.inputs[number] if event.artifact == artifact]
        branch = tree.add(f"{', '.join(map(plain, keys))} of {_format_execution(lineage, lineage.executions[number])}")
        if set(keys) <= set(OF_EARLIER_RUNS):
            continue
        for event in lineage.outputs[number]:
            leaf = branch.add(f"{plain(event.key)}: {_format_artifact(lineage.artifacts[event.artifact])}")
            if event.artifact in added:
                leaf.add("(above)")
            else:
                added.add(event.artifact)
                _add_downstream(lineage, event.artifact, leaf, added)


def _format_artifact(artifact: Artifact) -> str:
    notes = [
        f"{name.replace('_', ' ')} {plain(artifact.properties[name])}"
        for name in _LABEL_PROPERTIES
        if name in artifact.properties
    ]
    if artifact.state != "LIVE":
        notes.append(artifact.state.lower())
    return f"{plain(artifact.type)} {artifact.id}" + (f" ({', '.join(notes)})" if notes else "")


def _format_execution(lineage: Lineage, execution: Execution) -> str:
    code = lineage.code.get(execution.id)
    notes = f"execution {execution.id}" + (f", code {code}" if code else "")
    return f"{plain(execution.node or execution.type)}, run {plain(execution.run or 'none')} ({notes})"


def _list_nodes(lineage: Lineage) -> list[tuple[str, str, bool, bool]]:
    """Return the nodes of the graph as (name, label, whether it is the root, whether it is an artifact)."""
    artifacts = [
        (f"a{artifact.id}", _format_artifact(artifact), artifact.id == lineage.root.id, True)
        for artifact in lineage.artifacts.values()
    ]
    executions = [
        (f"e{execution.id}", _format_execution(lineage, execution), False, False)
        for execution in lineage.executions.values()
    ]
    return artifacts + executions


def _list_arrows(lineage: Lineage) -> list[tuple[str, str, str, bool]]:
    """Return the arrows of the graph as (source, target, key, whether the source is a model of an earlier run)."""
    return [
        (f"a{event.artifact}", f"e{event.execution}", event.key, event.key in OF_EARLIER_RUNS)
        if kind == "input"
        else (f"e{event.execution}", f"a{event.artifact}", event.key, False)
        for event, kind in _list_edges(lineage)
    ]


def _list_edges(lineage: Lineage) -> list[tuple[Event, str]]:
    inputs = [(event, "input") for events in lineage.inputs.values() for event in events]
    return inputs + [(event, "output") for events in lineage.outputs.values() for event in events]


def _escape_for_mermaid(text: str) -> str:
    """Escape a text for quotation marks in Mermaid, which supports only HTML entities."""
    return "".join(char if char.isalnum() or char in " ,.:/-_()" else f"#{ord(char)};" for char in text)
