"""Functions that process the results of a run. The caller passes them in; orchestration does not interpret results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.metadata.store import Store
from pipeline.core.records import RunSummary


@dataclass(frozen=True)
class Reporting:
    """Functions that are called in a child process after a node or a run. They must pickle by name.

    Attributes:
      summarize: Takes the store and the ID of a run; returns a summary of what the finished nodes have produced.
      write_report: Takes the store, the folder of logs and the ID of a run; returns the path of the report, or None if
        the store does not contain the run.
    """

    summarize: Callable[[Store, str], RunSummary]
    write_report: Callable[[Store, Path, str], Path | None]
