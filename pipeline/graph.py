"""A compiled pipeline's nodes and how they end, as plain records that any process can read without TFX."""

from __future__ import annotations

from dataclasses import dataclass

from components.errors import PipelineError

RUN, REUSE, LEAVE = "run", "reuse", "leave"

NODES = (
    "ExampleGen",
    "StatisticsGen",
    "SchemaGen",
    "ExampleValidator",
    "DataGate",
    "Transform",
    "Tuner",
    "BaseModel",
    "Trainer",
    "LatestBlessedModel",
    "Evaluator",
    "InfraValidator",
    "Pusher",
)
"""Every node that a pipeline of `build.py` may have, so that a name can be checked without TFX. The config decides
whether there is a Tuner, a BaseModel and an InfraValidator."""

DONE, CACHED, SKIPPED, FAILED = "done", "cached", "skipped", "failed"


@dataclass(frozen=True)
class GraphNode:
    """A node's place in the pipeline."""

    id: str
    upstream: tuple[str, ...]
    action: str = RUN
    """`run`; in a partial run also `reuse` (an earlier run's outputs stand in) and `leave` (no part of this run)."""


@dataclass(frozen=True)
class NodeOutcome:
    """How a node ended."""

    state: str
    """done, cached, skipped (its condition was false) or failed."""
    execution_id: int | None = None
    rows: int | None = None
    """Rows in all splits of the examples it made, if it made any and counted them."""
    error: PipelineError | None = None
    earlier: bool = False
    """Whether it had ended well before, in an earlier attempt at the same run, and was left alone now."""
