"""Plain records of a pipeline's nodes, of how nodes and runs end, and of what a run produced; readable without TFX."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from components.data.coarse_numbers import CoarseNumbers
from components.data.near_duplicates import NearDuplicates
from components.errors import PipelineError
from components.evaluator.verdict import Check, ConstantMetric, SliceMetrics
from components.features.hash_collisions import HashCollisions
from components.features.unparsed_dates import UnparsedDates
from components.serving.check_result import ServingCheckResult
from pipeline.core.nodes import NODES_WITH_RESULT

RUN, REUSE, EXCLUDE = "run", "reuse", "exclude"
DONE, CACHED, SKIPPED, FAILED = "done", "cached", "skipped", "failed"


@dataclass(frozen=True)
class GraphNode:
    """A node of the pipeline and the nodes it depends on."""

    id: str
    upstream: tuple[str, ...]
    action: str = RUN
    """`run`; in a partial run also `reuse` (an earlier run's outputs are used) and `exclude` (not part of this run)."""


@dataclass(frozen=True)
class NodeOutcome:
    """How a node ended."""

    state: str
    """done, cached, skipped (its condition was false) or failed."""
    execution_id: int | None = None
    rows: int | None = None
    """Rows in all splits of its output examples; None if it has none or did not count them."""
    error: PipelineError | None = None
    earlier: bool = False
    """Whether an earlier attempt at the same run had finished it, so that it did not run now."""
    jobs: tuple[str, ...] = ()
    """The web page of each job that it has submitted to Beam's engine, if the engine has one."""


NOT_RUN, INTERRUPTED = "not run", "interrupted"
DONE, FAILED, REJECTED = "done", "failed", "rejected"


@dataclass(frozen=True)
class NodeResult:
    """How a node ended, and which resources it used."""

    id: str
    state: str
    """done, cached, skipped, failed, interrupted or not run."""
    seconds: float
    cpu_seconds: float
    """Of its process and all its descendants."""
    peak_memory_mb: float
    rows: int | None
    log: Path | None
    error: PipelineError | None
    jobs: tuple[str, ...] = ()
    """As in NodeOutcome."""

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {
            "state": self.state,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "peak_memory_mb": round(self.peak_memory_mb, 1),
            "rows": self.rows,
            "log": None if self.log is None else str(self.log),
            "error": error_to_json(self.error),
            "jobs": list(self.jobs),
        }


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    run: str
    pipeline: str
    state: str
    """done; rejected (a gate rejected the data or the model); failed; interrupted."""
    seconds: float
    """From the start to the end, `import_seconds` among them."""
    import_seconds: float
    """How long the run waited for TensorFlow and TFX to be imported, and compiled the pipeline."""
    nodes: tuple[NodeResult, ...]
    error: PipelineError | None
    exit_code: int
    """0; 1 a fault of this program or the machine; 2 the user's input; 3 a gate; 128 + the signal."""
    summary: RunSummary
    logs: Path | None
    report: Path | None = None
    """The report; None if none was written."""
    beam: tuple[str, ...] = ()
    """The lines that describe Beam's engine; empty for a run that could not start."""

    def to_json(self) -> dict[str, Any]:
        """The one object that `--json` prints."""
        return {
            "run": self.run,
            "pipeline": self.pipeline,
            "state": self.state,
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 3),
            "import_seconds": round(self.import_seconds, 3),
            "beam": list(self.beam),
            "nodes": {node.id: node.to_json() for node in self.nodes},
            **self.summary.to_json(),
            "error": error_to_json(self.error),
            "logs": None if self.logs is None else str(self.logs),
            "report": None if self.report is None else str(self.report),
        }


def refused(error: PipelineError, run: str = "", pipeline: str = "") -> RunResult:
    """The result of a run that could not start."""
    return RunResult(run, pipeline, FAILED, 0.0, 0.0, (), error, error.exit_code, RunSummary(), logs=None)


def error_to_json(error: PipelineError | None) -> dict[str, Any] | None:
    """An error's headline, remedy, details and exit code."""
    if error is None:
        return None
    return {
        "headline": error.headline,
        "remedy": error.remedy,
        "details": list(error.details),
        "exit_code": error.exit_code,
    }


NOT_EVALUATED = "not evaluated"
BLESSED = "blessed"
NOT_BLESSED = "not blessed"


@dataclass(frozen=True)
class RunSummary:
    """What a run produced; what no node has produced yet is empty."""

    rows_read: int | None = None
    rows: dict[str, int] = field(default_factory=dict)
    """Rows per split."""
    rows_quarantined: int = 0
    """Bad rows in quarantine."""
    rows_left_out: int = 0
    """Rows in a gap between splits."""
    quarantine: str | None = None
    """The file with the bad rows."""
    column_types: dict[str, str] = field(default_factory=dict)
    """Column → type: int, float, bytes or missing."""
    near_duplicates: tuple[NearDuplicates, ...] = ()
    """Images of other splits that look like one of the training split, for each column of images and split."""
    hash_collisions: tuple[HashCollisions, ...] = ()
    """How many values of each hashed feature share a bucket."""
    unparsed_dates: tuple[UnparsedDates, ...] = ()
    """How many texts of each column of dates are not dates."""
    coarse_numbers: tuple[CoarseNumbers, ...] = ()
    """Columns of the training split whose values float32 can hardly tell apart."""
    training: dict[str, int] = field(default_factory=dict)
    """Counts of a training cluster on this machine: `steps`, `restarts`, steps `repeated` after restarts, and `damaged`
    checkpoints."""
    tuned: dict[str, Any] = field(default_factory=dict)
    """The Tuner's best values, by field of the training or the model section."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the eval split, all rows."""
    baseline: dict[str, float] = field(default_factory=dict)
    """The same for the model that the new one was compared with."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Metric of the eval split → lower and upper bound of its 95 % confidence interval, if it has one."""
    constant: dict[str, ConstantMetric] = field(default_factory=dict)
    """Metric of the eval split → that of the best constant prediction."""
    rows_evaluated: int | None = None
    """Rows of the eval split."""
    slices: tuple[SliceMetrics, ...] = ()
    """The same for each slice, and for the model that the new one was compared with."""
    checks: tuple[Check, ...] = ()
    """Each bound of the config, and whether the model meets it."""
    warnings: tuple[str, ...] = ()
    """What the verdict warns of: leakage, or a model that is no better than a constant."""
    verdict: str = NOT_EVALUATED
    forced: str | None = None
    """The reason given for blessing the model although checks failed."""
    serving: ServingCheckResult | None = None
    """Result of the serving check."""
    pushed: str | None = None
    """The folder of the pushed model."""
    pushed_version: str | None = None
    model: str | None = None
    """The folder of the trained model's artifact."""
    results: dict[str, Any] = field(default_factory=dict)
    """Node → its result, of nodes that record one; see components.node."""

    def to_json(self) -> dict[str, Any]:
        """Return the same as plain JSON values."""
        results = {name: NODES_WITH_RESULT[name].to_json(result) for name, result in self.results.items()}
        return {**asdict(replace(self, results={})), "results": results}
