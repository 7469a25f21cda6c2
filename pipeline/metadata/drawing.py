"""Lineage as trees for a terminal, as JSON, and in the languages of Graphviz and Mermaid."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pipeline.metadata.lineage import BESIDE, Lineage
from pipeline.metadata.store import Artifact, Event, Execution
from pipeline.metadata.words import plain

_TOLD = ("span", "rows_read", "blessed", "pushed_version")
"""Properties of an artifact that are told beside it."""


def trees(lineage: Lineage) -> list[Any]:
    """Two `rich.tree.Tree`s: up from the artifact to the data, and down to what was made of it."""
    from rich.tree import Tree

    root = lineage.root
    up = Tree(f"{_named(root)}\n{plain(root.uri, 1000)}\nmade from:", highlight=False)
    _up(lineage, root.id, up, set())
    for run, digest in lineage.configs.items():
        up.add(f"config of run {plain(run)}: {digest[:12]}")
    down = Tree("of it were made:" if root.id in lineage.readers else "nothing was made of it", highlight=False)
    _down(lineage, root.id, down, {root.id})
    return [up, down]


def json_of(lineage: Lineage) -> str:
    """The graph as one JSON object: root, artifacts, executions, and the edges between them."""
    told = {
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
    return json.dumps(told) + "\n"


def dot(lineage: Lineage) -> str:
    """The graph for Graphviz."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    for number, label, is_root, is_artifact in _nodes(lineage):
        shape = "ellipse" if is_artifact else "box"
        lines.append(f"  {number} [label={json.dumps(label)}, shape={shape}{', penwidth=3' if is_root else ''}];")
    for source, target, key, beside in _arrows(lineage):
        lines.append(f"  {source} -> {target} [label={json.dumps(plain(key))}{', style=dashed' if beside else ''}];")
    return "\n".join([*lines, "}"]) + "\n"


def mermaid(lineage: Lineage) -> str:
    """The graph for Mermaid."""
    lines = ["flowchart LR"]
    for number, label, is_root, is_artifact in _nodes(lineage):
        opening, closing = ("([", "])") if is_artifact else ("[", "]")
        lines.append(f'  {number}{opening}"{_entities(label)}"{closing}')
        if is_root:
            lines.append(f"  style {number} stroke-width:3px")
    for source, target, key, beside in _arrows(lineage):
        lines.append(f'  {source} {"-.->" if beside else "-->"}|"{_entities(plain(key))}"| {target}')
    return "\n".join(lines) + "\n"


def _up(lineage: Lineage, artifact: int, tree: Any, told: set[int]) -> None:
    maker = lineage.maker.get(artifact)
    if maker is None:
        tree.add("(nobody has written down what made it)")
        return
    branch = tree.add(_executed(lineage, lineage.executions[maker]))
    if maker in told:
        branch.add("(above)")
        return
    told.add(maker)
    for event in lineage.inputs[maker]:
        below = branch.add(f"{plain(event.key)}: {_named(lineage.artifacts[event.artifact])}")
        if event.key in BESIDE:
            below.add(f"(an earlier run's: lineage artifact:{event.artifact})")
        else:
            _up(lineage, event.artifact, below, told)


def _down(lineage: Lineage, artifact: int, tree: Any, told: set[int]) -> None:
    for number in lineage.readers.get(artifact, ()):
        keys = [event.key for event in lineage.inputs[number] if event.artifact == artifact]
        branch = tree.add(f"{', '.join(map(plain, keys))} of {_executed(lineage, lineage.executions[number])}")
        if set(keys) <= set(BESIDE):
            continue
        for event in lineage.outputs[number]:
            below = branch.add(f"{plain(event.key)}: {_named(lineage.artifacts[event.artifact])}")
            if event.artifact in told:
                below.add("(above)")
            else:
                told.add(event.artifact)
                _down(lineage, event.artifact, below, told)


def _named(artifact: Artifact) -> str:
    told = [
        f"{name.replace('_', ' ')} {plain(artifact.properties[name])}" for name in _TOLD if name in artifact.properties
    ]
    if artifact.state != "LIVE":
        told.append(artifact.state.lower())
    return f"{plain(artifact.type)} {artifact.id}" + (f" ({', '.join(told)})" if told else "")


def _executed(lineage: Lineage, execution: Execution) -> str:
    code = lineage.code.get(execution.id)
    told = f"execution {execution.id}" + (f", code {code}" if code else "")
    return f"{plain(execution.node or execution.type)}, run {plain(execution.run or 'none')} ({told})"


def _nodes(lineage: Lineage) -> list[tuple[str, str, bool, bool]]:
    """Each node's name, its label, whether it is the root, and whether it is an artifact."""
    artifacts = [(f"a{each.id}", _named(each), each.id == lineage.root.id, True) for each in lineage.artifacts.values()]
    return artifacts + [(f"e{each.id}", _executed(lineage, each), False, False) for each in lineage.executions.values()]


def _arrows(lineage: Lineage) -> list[tuple[str, str, str, bool]]:
    """From where, to where, the key, and whether it is to a model of an earlier run."""
    return [
        (f"a{event.artifact}", f"e{event.execution}", event.key, event.key in BESIDE)
        if kind == "input"
        else (f"e{event.execution}", f"a{event.artifact}", event.key, False)
        for event, kind in _edges(lineage)
    ]


def _edges(lineage: Lineage) -> list[tuple[Event, str]]:
    inputs = [(event, "input") for several in lineage.inputs.values() for event in several]
    return inputs + [(event, "output") for several in lineage.outputs.values() for event in several]


def _entities(text: str) -> str:
    """A text within quotation marks of Mermaid, which knows entities of HTML alone."""
    return "".join(sign if sign.isalnum() or sign in " ,.:/-_()" else f"#{ord(sign)};" for sign in text)
