"""What came out of a run, as plain records: rows, metrics, verdict, and where the model went."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from components.evaluator.verdict import Check, Measured
from components.serving.found import Found

NOT_EVALUATED = "not evaluated"
BLESSED = "blessed"
NOT_BLESSED = "not blessed"


@dataclass(frozen=True)
class Facts:
    """What is known at the end of a run; what no node has found out yet stays empty."""

    rows_read: int | None = None
    rows: dict[str, int] = field(default_factory=dict)
    """Rows per split."""
    rows_quarantined: int = 0
    """Bad rows that were set aside."""
    rows_left_out: int = 0
    """Rows in a gap between splits."""
    quarantine: str | None = None
    """The file with the bad rows."""
    column_types: dict[str, str] = field(default_factory=dict)
    """What each column holds: int, float, bytes or missing."""
    training: dict[str, int] = field(default_factory=dict)
    """How a cluster on this machine went: its `steps`, how many `restarts` it took, how many steps were `repeated`
    after them, and how many checkpoints were found `damaged`."""
    tuned: dict[str, Any] = field(default_factory=dict)
    """The values that a Tuner has found best, by field of the training or the model section."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the whole eval split."""
    baseline: dict[str, float] = field(default_factory=dict)
    """The same for the model that the new one was compared with."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Metric of the whole eval split → from and to, with 95 % confidence; those that have one."""
    rows_evaluated: int | None = None
    """How many rows that was."""
    slices: tuple[Measured, ...] = ()
    """The same for each slice, and for the model that the new one was compared with."""
    checks: tuple[Check, ...] = ()
    """Each bound of the config, and whether the model keeps it."""
    verdict: str = NOT_EVALUATED
    forced: str | None = None
    """Why the model was blessed although checks have failed."""
    serving: Found | None = None
    """What the serving check found."""
    pushed: str | None = None
    """The folder of the pushed model."""
    pushed_version: str | None = None
    model: str | None = None
    """The folder of the trained model's artifact."""

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return asdict(self)
