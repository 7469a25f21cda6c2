"""The functions that orchestration calls after a run: one summarizes the run, the other writes its report.

Orchestration must not import the package inspection, so it receives the functions as arguments. It calls them in child
processes; therefore they are module-level functions, which can be pickled, and import late.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.orchestration.reporting import Reporting

if TYPE_CHECKING:
    from pipeline.core.metadata.store import Store
    from pipeline.core.records import RunSummary


def summarize(store: Store, run: str) -> RunSummary:
    """Summarize the outputs of a run's finished nodes, read from the store."""
    from pipeline.inspection import run_summary

    return run_summary.summarize(store, run)


def write_report(store: Store, logs: Path, run: str) -> Path | None:
    """Write the HTML report of a run.

    Returns:
      The path of the report; None if the store does not contain the run.

    Raises:
      MachineError: The file cannot be written, or the store is damaged.
    """
    from pipeline.inspection.report import write

    recorded = next((entry for entry in store.runs_like(run) if entry.name == run), None)
    if recorded is None:
        return None
    file = write.report_path(logs, run)
    write.write_report(store, logs, recorded, file)
    return file


REPORTING = Reporting(summarize, write_report)
