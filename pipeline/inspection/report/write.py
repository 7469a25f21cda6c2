"""Writes the report of a run, and optionally its model card, to files."""

from __future__ import annotations

from pathlib import Path

from components.base.errors import InputError, MachineError
from components.base.files import write_atomically
from pipeline.core.metadata.store import Run, Store
from pipeline.core.run_record import is_folder_name
from pipeline.inspection.report import content, model_card, run_page

NAME = "report.html"
CARD = "model-card"


def report_path(logs: Path, run: str) -> Path:
    """Return the path of a run's report.

    Args:
      logs: Folder with one subfolder per run.
      run: ID of the run.

    Raises:
      InputError: The ID of the run cannot be the name of a folder.
    """
    if not is_folder_name(run):
        raise InputError(
            f"report: expected a run ID that can be the name of a folder, received {run!r}",
            "name a file for the report with --into FILE",
        )
    return logs / run / NAME


def write_report(store: Store, logs: Path, run: Run, file: Path, with_card: bool = False) -> list[Path]:
    """Write the report of a run, and optionally its model card.

    Args:
      store: The store that holds the run.
      logs: Folder with one subfolder per run.
      run: The run.
      file: Path of the report. Its folder is created if it does not exist.
      with_card: Whether to write a model card as Markdown and JSON into the same folder.

    Returns:
      The paths of the written files.

    Raises:
      MachineError: A file cannot be written, or the store is damaged.
    """
    collected = content.collect(store, logs, run)
    texts = {file: run_page.render(collected, file.absolute().parent)}
    if with_card:
        texts[file.with_name(f"{CARD}.md")] = model_card.to_markdown(collected)
        texts[file.with_name(f"{CARD}.json")] = model_card.to_json(collected)
    for path, text in texts.items():
        write_text(path, text)
    return list(texts)


def write_text(file: Path, text: str, option: str = "--into") -> None:
    """Write a text to a file. If that fails, the file keeps its previous content.

    Args:
      file: Path of the file. Its folder is created if it does not exist.
      text: Content of the file.
      option: Command-line option that named the file, which the error mentions.

    Raises:
      MachineError: The file cannot be written.
    """
    try:
        # UTF-8 cannot encode lone surrogates, which file names may contain. They are written as question marks.
        write_atomically(file, text.encode(errors="replace"))
    except OSError as error:
        raise MachineError(
            f"{file} cannot be written: {error.strerror or error}", f"name another file with {option}"
        ) from error
