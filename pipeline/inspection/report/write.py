"""Writes the report of a run, and optionally its model card, to files."""

from __future__ import annotations

from pathlib import Path

from components.errors import InputError, MachineError
from components.files import write_atomically
from pipeline.core.metadata.store import Run, Store
from pipeline.core.run_record import is_folder_name
from pipeline.inspection.report import content, model_card, run_page

NAME = "report.html"
CARD = "model-card"


def report_path(logs: Path, run: str) -> Path:
    """Returns the path of a run's report.

    Args:
      logs: the folder with a folder per run.
      run: the run's id.

    Raises:
      InputError: the run's id cannot be the name of a folder.
    """
    if not is_folder_name(run):
        raise InputError(
            f"report: expected a run's id that is the name of a folder, received {run!r}", "name a file with --to FILE"
        )
    return logs / run / NAME


def write_report(store: Store, logs: Path, run: Run, file: Path, with_card: bool = False) -> list[Path]:
    """Writes a run's report.

    Args:
      store: with the run.
      logs: the folder with a folder per run.
      run: the run.
      file: the page; its folder is created if it does not exist.
      with_card: whether to write a model card into the same folder.

    Returns:
      The files written.

    Raises:
      MachineError: a file cannot be written, or the store is damaged.
    """
    collected = content.collect(store, logs, run)
    texts = {file: run_page.render(collected, file.absolute().parent)}
    if with_card:
        texts[file.with_name(f"{CARD}.md")] = model_card.to_markdown(collected)
        texts[file.with_name(f"{CARD}.json")] = model_card.to_json(collected)
    for path, text in texts.items():
        write_text(path, text)
    return list(texts)


def write_text(file: Path, text: str, option: str = "--to") -> None:
    """Replaces a file's content, or leaves it as it was.

    Args:
      file: the file; its folder is created if it does not exist.
      text: the content.
      option: that named the file, for errors.

    Raises:
      MachineError: the file cannot be written.
    """
    try:
        # Characters that UTF-8 cannot encode, such as lone surrogates of a file name, are written as question marks.
        write_atomically(file, text.encode(errors="replace"))
    except OSError as error:
        raise MachineError(
            f"{file} cannot be written: {error.strerror or error}", f"name another file with {option}"
        ) from error
