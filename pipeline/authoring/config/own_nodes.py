"""The section `nodes`: TFX components of the user's own, as nodes of the pipeline; and its checks without TFX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints

from components.base.config_section import Problem, Section
from components.base.names import ImportPath, did_you_mean
from components.base.node import Node


def _to_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_to_list)]
"""One name, or a list of names."""
Output = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w*\.[A-Za-z_]\w*$")]
"""An output of a node, as `Node.output`."""

_ID = r"^[A-Za-z][A-Za-z0-9_]{0,39}$"
_RESERVED = frozenset({"compile", "due", "pipeline", "record", "run", "server"})
"""Names of tasks that orchestrators have beside the nodes, and of files beside the nodes' logs."""


class OwnNodeConfig(Section):
    """A TFX component of your own, or a function with TFX's decorator `@component`, as a node of the pipeline."""

    component: ImportPath
    """Its import path, such as my_package.MyComponent. Every process that runs the node imports it."""
    id: Annotated[str, StringConstraints(pattern=_ID)] | None = None
    """The node's name; by default the last part of `component`."""
    inputs: dict[str, Output] = Field(default_factory=dict)
    """Input → the output that it reads, as Node.output, such as model: Trainer.model."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Parameter → value; they are part of the cache key, and must not be secrets."""
    after: Names = ()
    """A node, or several, that must be done before this one starts, beside those whose outputs it reads."""
    before: Names = ()
    """A node, or several, that start only when this one is done: with before: Pusher, no model is pushed if this node
    fails."""

    @property
    def name(self) -> str:
        """The node's id."""
        return self.id or self.component.rpartition(".")[2]

    @property
    def upstream(self) -> tuple[str, ...]:
        """The nodes whose outputs it reads, and those that it is after."""
        return (*(source.partition(".")[0] for source in self.inputs.values()), *self.after)


def check_nodes(nodes: Sequence[OwnNodeConfig], pipeline: str, standard: Mapping[str, Node]) -> list[Problem]:
    """Return ids that are taken, name that no node or output has, and otherwise a cycle.

    Args:
      nodes: the section.
      pipeline: the pipeline's name, which no node may have.
      standard: Name → node, for the nodes that the pipeline may have besides the section.
    """
    return [*_ids(nodes, pipeline, standard), *_names(nodes, standard)] or list(_cycle(nodes, standard))


def _ids(nodes: Sequence[OwnNodeConfig], pipeline: str, standard: Mapping[str, Node]) -> Iterator[Problem]:
    taken = {_plain(name): name for name in (*standard, *_RESERVED)}
    for index, node in enumerate(nodes):
        if not re.fullmatch(_ID, node.name):
            message = f"expected an id of at most 40 ASCII letters, digits and _, received {node.name!r}; set id"
            yield Problem(("nodes", index, "id"), message)
        same = pipeline if node.name == pipeline else taken.get(_plain(node.name))
        if same:
            message = f"expected an id that is not taken, received {node.name!r}, and there is {same!r}; set another id"
            yield Problem(("nodes", index, "id"), message)
        taken[_plain(node.name)] = node.name


def _plain(name: str) -> str:
    """Remove what the names of Kubernetes' objects do not have."""
    return name.replace("_", "").lower()


def _names(nodes: Sequence[OwnNodeConfig], standard: Mapping[str, Node]) -> Iterator[Problem]:
    own = [node.name for node in nodes]
    known = (*standard, *own)
    for index, node in enumerate(nodes):
        for field, names in (("after", node.after), ("before", node.before)):
            for name in names:
                if name not in known:
                    message = f"the pipeline has no node {name!r}{did_you_mean(name, known)}"
                    yield Problem(("nodes", index, field), message)
                elif name in standard and standard[name].only_looks_up:
                    message = f"expected a node that runs, received {name}, which only looks up a model; remove it"
                    yield Problem(("nodes", index, field), message)
        for key, source in node.inputs.items():
            name, _, output = source.partition(".")
            if name not in known:
                message = f"the pipeline has no node {name!r}{did_you_mean(name, known)}"
                yield Problem(("nodes", index, "inputs", key), message)
            elif name not in own and output not in standard[name].outputs:
                message = f"{name} has no output {output!r}{did_you_mean(output, standard[name].outputs)}"
                yield Problem(("nodes", index, "inputs", key), message)


def _cycle(nodes: Sequence[OwnNodeConfig], standard: Mapping[str, Node]) -> Iterator[Problem]:
    upstream = {name: set(node.upstream) for name, node in standard.items()}
    upstream |= {node.name: set(node.upstream) for node in nodes}
    for node in nodes:
        for name in node.before:
            upstream[name].add(node.name)
    try:
        TopologicalSorter(upstream).prepare()
    except CycleError as error:
        cycle = error.args[1]
        index = next(index for index, node in enumerate(nodes) if node.name in cycle)
        yield Problem(("nodes", index), f"the dependencies form a cycle: {' → '.join(cycle)}; remove one of them")
