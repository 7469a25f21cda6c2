"""Writes the page of a run, and its model card beside it; each file whole, or not at all."""

from __future__ import annotations

from pathlib import Path

from components.errors import InputError, MachineError
from pipeline.metadata.history import is_folder_name
from pipeline.metadata.store import Run, Store
from pipeline.report import card, content, page

NAME = "report.html"
CARD = "model-card"


def place(logs: Path, run: str) -> Path:
    """Where the report of a run lies.

    Raises:
      InputError: the run's id is no name of a folder.
    """
    if not is_folder_name(run):
        raise InputError(f"the id of the run is no name of a folder: {run!r}", "say where to with --to FILE")
    return logs / run / NAME


def report(store: Store, logs: Path, run: Run, file: Path, with_card: bool = False) -> list[Path]:
    """Writes a run's report.

    Args:
      store: with the run.
      logs: the folder with a folder per run.
      run: the run.
      file: to be written; its folder is made.
      with_card: whether to write a model card beside it.

    Returns:
      The files.

    Raises:
      MachineError: a file cannot be written, or the store is damaged.
    """
    told = content.of_run(store, logs, run)
    texts = {file: page.rendered(told, file.absolute().parent)}
    if with_card:
        texts[file.with_name(f"{CARD}.md")] = card.as_markdown(told)
        texts[file.with_name(f"{CARD}.json")] = card.as_json(told)
    for path, text in texts.items():
        whole(path, text)
    return list(texts)


def whole(file: Path, text: str) -> None:
    """Writes a file, or leaves what was there.

    Raises:
      MachineError: it cannot be written.
    """
    beside = file.with_name(f"{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # What is no text (a lone surrogate out of a file name, say) is written as a question mark.
        beside.write_bytes(text.encode(errors="replace"))
        beside.replace(file)
    except OSError as error:
        raise MachineError(
            f"{file} cannot be written: {error.strerror or error}", "name another place with --to"
        ) from error
