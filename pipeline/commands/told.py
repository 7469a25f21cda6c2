"""How the verbs that look at metadata print: tables, and which run is meant."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from components.errors import InputError
from components.names import did_you_mean
from pipeline.metadata.store import Run, Store
from pipeline.targets.environment import ENVIRONMENT

LATEST = "latest"


def table(*columns: str) -> Any:
    """An empty `rich.table.Table` with these columns, without borders."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column)
    return made


def show(*several: Any) -> None:
    """Prints tables, trees and texts, as text alone: what stands in square brackets is not markup."""
    from rich.console import Console

    # On a pipe as wide as it takes: a table that is cut tells less.
    width = None if sys.stdout.isatty() else 400
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True, width=width)
    for each in several:
        console.print(each)


@contextmanager
def only_ours() -> Iterator[None]:
    """Keeps off the screen what TensorFlow's libraries say of the machine, some of it before they take any options.

    A stock Evaluator's metrics are read by TFMA, which imports them all.
    """
    os.environ.update(ENVIRONMENT)
    screen, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(screen, 2)
        os.close(screen)
        os.close(nowhere)


def find_run(store: Store, pipeline: str | None, told: str) -> Run:
    """A run by its id, by how that begins, or by `latest`.

    Raises:
      InputError: there is none, or several begin so.
    """
    runs = store.runs(pipeline, 1) if told == LATEST else store.runs_like(told, pipeline)
    exact = [run for run in runs if run.name == told]
    if len(exact or runs) == 1:
        return (exact or runs)[0]
    if runs:
        raise InputError(
            f"several runs begin with {told!r}: {', '.join(run.name for run in runs[:5])}", "write more of the one's id"
        )
    newest = [run.name for run in store.runs(pipeline, 20)]
    raise InputError(
        f"there is no run {told!r}{did_you_mean(told, newest) if newest else ''}",
        f"the newest is {newest[0]}; `python runner.py runs` lists them" if newest else "run the pipeline first",
    )
