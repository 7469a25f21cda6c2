"""The node that this process runs, with the title for its jobs on an engine and the web pages of these jobs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class CurrentNode:
    """A running node.

    Attributes:
      title: Pipeline, run and node, joined by hyphens. Jobs on an engine are named after it.
      jobs: URLs of the web pages of the jobs that the node has submitted to an engine.
    """

    title: str = "job"
    jobs: list[str] = field(default_factory=list)


_current = CurrentNode()


def begin(pipeline: str, run: str, node: str) -> CurrentNode:
    """Record that this process runs a node from now on, and return the record."""
    global _current
    _current = CurrentNode(f"{pipeline}-{run}-{node}")
    return _current


def current() -> CurrentNode:
    """Return the node that this process runs."""
    return _current
