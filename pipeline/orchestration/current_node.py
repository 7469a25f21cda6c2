"""The node that this process runs: the name for its jobs on an engine, and the web pages of these jobs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class CurrentNode:
    """A node that runs.

    Attributes:
      title: its pipeline, its run and its name.
      jobs: the web page of each job that it has submitted to an engine.
    """

    title: str = "job"
    jobs: list[str] = field(default_factory=list)


_current = CurrentNode()


def begin(pipeline: str, run: str, node: str) -> CurrentNode:
    """Set the node that this process runs from now on."""
    global _current
    _current = CurrentNode(f"{pipeline}-{run}-{node}")
    return _current


def current() -> CurrentNode:
    """Return the node that this process runs."""
    return _current
