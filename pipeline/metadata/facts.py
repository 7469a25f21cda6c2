"""What came out of a run, as plain records: rows, metrics, verdict, and where the model went."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

NOT_EVALUATED = "not evaluated"
BLESSED = "blessed"
NOT_BLESSED = "not blessed"


@dataclass(frozen=True)
class SliceMetrics:
    """The metrics of the rows that share some values, e.g. `{"trip_start_hour": "5"}`."""

    slice: dict[str, str]
    metrics: dict[str, float]


@dataclass(frozen=True)
class Failure:
    """A metric that stayed outside its threshold."""

    metric: str
    slice: dict[str, str]
    value: float | None
    bound: str
    """The threshold in words, e.g. `at least 0.6`."""

    def __str__(self) -> str:
        where = " and ".join(f"{key} = {value}" for key, value in self.slice.items())
        value = "none" if self.value is None else f"{self.value:.6g}"
        return f"{self.metric}{f' where {where}' if where else ''}: expected {self.bound}, received {value}"


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
    metrics: dict[str, float] = field(default_factory=dict)
    slices: tuple[SliceMetrics, ...] = ()
    validation_ok: bool | None = None
    failures: tuple[Failure, ...] = ()
    verdict: str = NOT_EVALUATED
    pushed: str | None = None
    """The folder of the pushed model."""
    pushed_version: str | None = None
    model: str | None = None
    """The folder of the trained model's artifact."""

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return asdict(self)
