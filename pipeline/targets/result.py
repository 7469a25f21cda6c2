"""What a run comes to: its state, its nodes, its error and its facts, as plain records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.errors import PipelineError
from pipeline.metadata.facts import Facts

NOT_RUN, INTERRUPTED = "not run", "interrupted"
DONE, FAILED, REJECTED = "done", "failed", "rejected"


@dataclass(frozen=True)
class NodeResult:
    """How a node ended, and what it used."""

    id: str
    state: str
    """done, cached, skipped, failed, interrupted or not run."""
    seconds: float
    cpu_seconds: float
    """Of its process and all processes below it."""
    peak_memory_mb: float
    rows: int | None
    log: Path | None
    error: PipelineError | None

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
        }


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    run: str
    pipeline: str
    state: str
    """done; rejected (a gate said no to the data or the model); failed; interrupted."""
    seconds: float
    """From the start to the end, `import_seconds` among them."""
    import_seconds: float
    """How long the run waited for TensorFlow and TFX to be imported, and compiled the pipeline."""
    nodes: tuple[NodeResult, ...]
    error: PipelineError | None
    exit_code: int
    """0; 1 our fault or the machine's; 2 the user's input; 3 a gate said no; 128 + the signal that ended it."""
    facts: Facts
    logs: Path | None
    report: Path | None = None
    """The page that tells of it; None where there is none."""
    beam: tuple[str, ...] = ()
    """What Beam ran on, in words; nothing of a run that could not begin."""

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
            **self.facts.to_json(),
            "error": error_to_json(self.error),
            "logs": None if self.logs is None else str(self.logs),
            "report": None if self.report is None else str(self.report),
        }


def refused(error: PipelineError, run: str = "", pipeline: str = "") -> RunResult:
    """The result of a run that could not begin."""
    return RunResult(run, pipeline, FAILED, 0.0, 0.0, (), error, error.exit_code, Facts(), logs=None)


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
