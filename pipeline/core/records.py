"""Plain records of a pipeline's nodes, of the results of nodes and runs, and of the outputs of a run.

The module does not import TFX.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from components.base.errors import PipelineError
from components.data.coarse_numbers import CoarseNumbers
from components.data.near_duplicates import NearDuplicates
from components.evaluator.verdict import Check, ConstantMetric, MissedClasses, SliceMetrics
from components.features.hash_collisions import HashCollisions
from components.features.unparsed_dates import UnparsedDates
from components.results import input_wait
from components.results.decision import Decision
from components.results.task_load import TaskLoad, describe_imbalance
from components.serving.check_result import ServingCheckResult
from pipeline.core.nodes import NODES_WITH_RESULT

RUN, REUSE, EXCLUDE = "run", "reuse", "exclude"
DONE, CACHED, SKIPPED, FAILED = "done", "cached", "skipped", "failed"


@dataclass(frozen=True)
class GraphNode:
    """A node of the pipeline with the nodes that it depends on."""

    id: str
    upstream: tuple[str, ...]
    action: str = RUN
    """`run`; in a partial run also `reuse` (use the outputs of an earlier run) or `exclude` (not part of this run)."""


@dataclass(frozen=True)
class NodeOutcome:
    """How a node ended."""

    state: str
    """done, cached, skipped (its condition was false) or failed."""
    execution_id: int | None = None
    rows: int | None = None
    """Rows in all splits of the examples that the node wrote; None if it did not write or count examples."""
    error: PipelineError | None = None
    earlier: bool = False
    """Whether an earlier attempt at the same run finished the node, so that it did not run again."""
    jobs: tuple[str, ...] = ()
    """Web pages of the jobs that the node submitted to Beam's engine, if the engine has web pages."""


NOT_RUN, INTERRUPTED = "not run", "interrupted"
DONE, FAILED, REJECTED = "done", "failed", "rejected"


@dataclass(frozen=True)
class NodeResult:
    """How a node ended, and the resources that it used."""

    id: str
    state: str
    """done, cached, skipped, failed, interrupted or not run."""
    seconds: float
    cpu_seconds: float
    """CPU-seconds of the node's process and all its descendants."""
    peak_memory_mb: float
    rows: int | None
    log: Path | None
    error: PipelineError | None
    jobs: tuple[str, ...] = ()
    """Web pages of the node's jobs; see NodeOutcome."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
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
    """Duration from the start to the end, including `import_seconds`."""
    import_seconds: float
    """Duration of importing TensorFlow and TFX and compiling the pipeline."""
    nodes: tuple[NodeResult, ...]
    error: PipelineError | None
    exit_code: int
    """0: success; 1: a fault of this program or the machine; 2: invalid input; 3: rejected by a gate; 128 + signal:
    interrupted."""
    summary: RunSummary
    logs: Path | None
    report: Path | None = None
    """Path of the report; None if it was not written."""
    beam: tuple[str, ...] = ()
    """Lines that describe Beam's engine; empty for a run that could not start."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as the JSON object that `--json` prints."""
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


def make_refused_result(error: PipelineError, run: str = "", pipeline: str = "") -> RunResult:
    """Return the result of a run that could not start because of an error."""
    return RunResult(run, pipeline, FAILED, 0.0, 0.0, (), error, error.exit_code, RunSummary(), logs=None)


def error_to_json(error: PipelineError | None) -> dict[str, Any] | None:
    """Return the headline, the remedy, the details and the exit code of an error as JSON values."""
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
QUARANTINED = "quarantined"


@dataclass(frozen=True)
class RunSummary:
    """The outputs of a run; fields are empty until a node has produced them."""

    rows_read: int | None = None
    rows: dict[str, int] = field(default_factory=dict)
    """Split → number of rows."""
    rows_excluded: dict[str, int] = field(default_factory=dict)
    """Why rows that were read are in no split → number of these rows."""
    joins: tuple[dict[str, Any], ...] = ()
    """Joins of `data.join`: `path` of the side table, `rows` that were read, and rows that `matched`."""
    quarantine: str | None = None
    """Path of the file with the bad rows."""
    column_types: dict[str, str] = field(default_factory=dict)
    """Column → type: int, float, bytes or missing."""
    near_duplicates: tuple[NearDuplicates, ...] = ()
    """Images that look like an image of the training split, per image column and other split."""
    hash_collisions: tuple[HashCollisions, ...] = ()
    """Numbers of values that share a bucket, per hashed feature."""
    unparsed_dates: tuple[UnparsedDates, ...] = ()
    """Numbers of texts that are not dates, per date column."""
    coarse_numbers: tuple[CoarseNumbers, ...] = ()
    """Columns of the training split with values that differ by less than float32 can represent."""
    training: dict[str, int] = field(default_factory=dict)
    """Counts of a training cluster on this machine: `steps`, `restarts`, steps `repeated` after restarts, `damaged`
    checkpoints, and the peak memory of a worker and a ps; the properties of components.results.device_memory of a mesh;
    and the properties of components.results.input_wait, of every network."""
    tasks: tuple[TaskLoad, ...] = ()
    """Loads of the tasks of a training cluster on this machine."""
    tuned: dict[str, Any] = field(default_factory=dict)
    """Field of the training or the model section → the best value that the Tuner found."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Metric → value on all rows of the eval split."""
    baseline: dict[str, float] = field(default_factory=dict)
    """Metric → value of the baseline model on the same rows."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Metric → lower and upper bound of its 95 % confidence interval on the eval split, if it was computed."""
    constant: dict[str, ConstantMetric] = field(default_factory=dict)
    """Metric → value of the best constant prediction on the eval split."""
    linear: dict[str, float] = field(default_factory=dict)
    """Metric → value of a linear model on the eval split."""
    rows_evaluated: int | None = None
    """Number of rows in the eval split."""
    slices: tuple[SliceMetrics, ...] = ()
    """Metrics of the new model and of the baseline model per slice."""
    checks: tuple[Check, ...] = ()
    """Results of the config's bounds: whether the model meets them."""
    warnings: tuple[str, ...] = ()
    """Warnings of the verdict, for example of leakage, or of a model that does not beat a constant prediction."""
    decisions: dict[str, Decision] = field(default_factory=dict)
    """Name of a label, empty for the only label → the model's decision; empty if the model returns probabilities
    only."""
    missed_classes: MissedClasses | None = None
    """Classes of which the model recognizes no row of the eval split."""
    verdict: str = NOT_EVALUATED
    forced: str | None = None
    """Reason of --force-bless if the model was blessed although checks failed."""
    serving: ServingCheckResult | None = None
    """Result of the serving check."""
    pushed: str | None = None
    """Folder of the pushed model."""
    pushed_version: str | None = None
    awaits_approval: bool = False
    """Whether the model waits for `models approve`, so that it is not pushed yet."""
    approval: dict[str, str] = field(default_factory=dict)
    """Approval of the push: `by`, `at` and `note`; empty if the push did not require one or waits for it."""
    model: str | None = None
    """Folder of the artifact with the trained model."""
    results: dict[str, Any] = field(default_factory=dict)
    """Node → result, for nodes that record a result; see components.base.node."""

    def describe_data_warnings(self) -> list[str]:
        """Return what is suspicious about the data, its features, how they are read, and the tasks of the training."""
        return [
            *(f"near duplicates: {duplicates}" for duplicates in self.near_duplicates if duplicates.found),
            *(f"hash collisions: {collisions}" for collisions in self.hash_collisions if collisions.is_high),
            *(f"dates: {column}" for column in self.unparsed_dates if column.is_high),
            *(f"numbers: {numbers}" for numbers in self.coarse_numbers),
            *([waited] if (waited := input_wait.describe(self.training)) else []),
            *([imbalance] if (imbalance := describe_imbalance(self.tasks)) else []),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain JSON values."""
        results = {name: NODES_WITH_RESULT[name].to_json(result) for name, result in self.results.items()}
        return {**asdict(replace(self, results={})), "results": results}
