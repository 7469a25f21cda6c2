"""The functions that process a run's results, passed in by the caller: orchestration does not interpret results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.metadata.store import Store
from pipeline.core.records import RunSummary


@dataclass(frozen=True)
class Reporting:
    """Functions that are called after a node or a run, in a child process; they pickle by name.

    Attributes:
      summarize: takes the store and a run's id; returns what the finished nodes have produced.
      write_report: takes the store, the folder of logs and a run's id; returns the file, or None if the store has no
        such run.
    """

    summarize: Callable[[Store, str], RunSummary]
    write_report: Callable[[Store, Path, str], Path | None]
