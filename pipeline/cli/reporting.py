"""The functions that write reports for other use cases, which do not import the package of the report.

Orchestration receives `summarize` and `write_report` as arguments, because it must not import the package inspection.
It calls them in child processes; therefore they are module-level functions, which can be pickled, and import late.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.orchestration.reporting import Reporting

if TYPE_CHECKING:
    from components.base.node import ReportSection
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


def write_section(file: Path, section: ReportSection, pipeline: str) -> None:
    """Write a page with a single section of the report, for the option `--html`.

    Args:
      file: The page.
      section: The section.
      pipeline: Name of the pipeline.

    Raises:
      MachineError: The file cannot be written.
    """
    from pipeline.inspection.report import run_page, write

    write.write_text(file, run_page.render_section(section, pipeline), "--html")


REPORTING = Reporting(summarize, write_report)
