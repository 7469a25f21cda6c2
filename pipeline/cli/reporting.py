"""Gives orchestration what inspection can do with a finished run: summarize it, and write its report.

Orchestration calls both functions in child processes, so they pickle by name and import late.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.orchestration.reporting import Reporting

if TYPE_CHECKING:
    from pipeline.core.metadata.store import Store
    from pipeline.core.records import RunSummary


def summarize(store: Store, run: str) -> RunSummary:
    """Reads from the store what the finished nodes of a run have produced."""
    from pipeline.inspection import run_summary

    return run_summary.summarize(store, run)


def write_report(store: Store, logs: Path, run: str) -> Path | None:
    """Writes the report of a run.

    Returns:
      The file; None if the store has no such run.

    Raises:
      MachineError: the file cannot be written, or the store is damaged.
    """
    from pipeline.inspection.report import write

    recorded = next((each for each in store.runs_like(run) if each.name == run), None)
    if recorded is None:
        return None
    file = write.report_path(logs, run)
    write.write_report(store, logs, recorded, file)
    return file


REPORTING = Reporting(summarize, write_report)
