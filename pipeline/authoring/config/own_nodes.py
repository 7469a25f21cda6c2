"""The section `nodes`, which adds TFX components that the user wrote, and its checks, which do not need TFX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from components.base.config_section import Problem, Section, Texts
from components.base.names import ImportPath, did_you_mean
from components.base.node import Node

Output = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w*\.[A-Za-z_]\w*$")]
"""Output of a node, written `Node.output`."""

_ID = r"^[A-Za-z][A-Za-z0-9_]{0,39}$"
_RESERVED = frozenset({"compile", "due", "pipeline", "record", "run", "server", "wait_for_data"})
"""Names that a node cannot have, because orchestrators use them for tasks, or runs use them for log files."""


class OwnNodeConfig(Section):
    """A TFX component that you wrote, or a function with TFX's decorator `@component`, as a node of the pipeline."""

    component: ImportPath
    """Import path of the component, such as my_package.MyComponent. Every process that runs the node imports it."""
    id: Annotated[str, StringConstraints(pattern=_ID)] | None = None
    """Name of the node. By default, the last part of `component`."""
    inputs: dict[str, Output] = Field(default_factory=dict)
    """Input → output of another node, written Node.output, as in `model: Trainer.model`."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Parameter → value. Values are part of the cache key and must not be secrets."""
    after: Texts = ()
    """Nodes that must finish before this node starts, in addition to the nodes whose outputs it reads."""
    before: Texts = ()
    """Nodes that start only after this node has finished. With `before: Pusher`, the model is not pushed if this node
    fails."""

    @property
    def name(self) -> str:
        """Name of the node: `id`, or the last part of `component`."""
        return self.id or self.component.rpartition(".")[2]

    @property
    def upstream(self) -> tuple[str, ...]:
        """Names of the nodes that must finish first: nodes whose outputs this node reads, and nodes in `after`."""
        return (*(source.partition(".")[0] for source in self.inputs.values()), *self.after)


def check_nodes(nodes: Sequence[OwnNodeConfig], pipeline: str, standard: Mapping[str, Node]) -> list[Problem]:
    """Return problems with the section: IDs that are taken, unknown nodes and outputs, or a cycle.

    Cycles are only searched for if all names are valid.

    Args:
      nodes: Entries of the section.
      pipeline: Name of the pipeline, which a node cannot have.
      standard: Name → node, for the other nodes that the pipeline may have.
    """
    return [*_ids(nodes, pipeline, standard), *_names(nodes, standard)] or list(_cycle(nodes, standard))


def _ids(nodes: Sequence[OwnNodeConfig], pipeline: str, standard: Mapping[str, Node]) -> Iterator[Problem]:
    """Yield IDs that are invalid or taken. Names that Kubernetes cannot distinguish count as equal."""
    used_ids = {_plain(name): name for name in (*standard, *_RESERVED)}
    for index, node in enumerate(nodes):
        if not re.fullmatch(_ID, node.name):
            message = f"expected an id of at most 40 ASCII letters, digits and _, received {node.name!r}; set id"
            yield Problem(("nodes", index, "id"), message)
        same = pipeline if node.name == pipeline else used_ids.get(_plain(node.name))
        if same:
            message = f"expected an id that is not taken, received {node.name!r}, and there is {same!r}; set another id"
            yield Problem(("nodes", index, "id"), message)
        used_ids[_plain(node.name)] = node.name


def _plain(name: str) -> str:
    """Remove the differences that names of Kubernetes objects cannot express: underscores and upper case."""
    return name.replace("_", "").lower()


def _names(nodes: Sequence[OwnNodeConfig], standard: Mapping[str, Node]) -> Iterator[Problem]:
    """Yield unknown nodes and outputs in `after`, `before` and `inputs`."""
    user_nodes = [node.name for node in nodes]
    known = (*standard, *user_nodes)
    # The outputs of components that the user wrote are only known after their import; see pipeline.authoring.own_nodes.
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
            elif name not in user_nodes and output not in standard[name].outputs:
                message = f"{name} has no output {output!r}{did_you_mean(output, standard[name].outputs)}"
                yield Problem(("nodes", index, "inputs", key), message)


def _cycle(nodes: Sequence[OwnNodeConfig], standard: Mapping[str, Node]) -> Iterator[Problem]:
    """Yield a cycle in the dependencies of all nodes, if there is a cycle."""
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
