"""Printing of tables and JSON, and the selection of a run, for the commands that read metadata."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from components.base.errors import InputError
from components.base.names import did_you_mean
from components.compat.tensorflow import ENVIRONMENT
from pipeline.core.metadata.store import Run, Store

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

LATEST = "latest"


def make_table(*columns: str) -> Table:
    """Return an empty table without borders that has these column headers."""
    from rich.table import Table

    empty = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        empty.add_column(column)
    return empty


def show(*renderables: RenderableType) -> None:
    """Print tables, trees and texts. Square brackets are printed literally, not interpreted as markup."""
    from rich.console import Console

    # Without a terminal, rich assumes 80 columns and would truncate tables.
    width = None if sys.stdout.isatty() else 400
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True, width=width)
    for renderable in renderables:
        console.print(renderable)


@contextmanager
def suppress_native_stderr() -> Iterator[None]:
    """Suppress Python warnings, and everything that native libraries write to the process's standard error.

    TFMA reads the metrics of a stock Evaluator and imports TensorFlow's native libraries. Some of these log while they
    are being loaded, before a log level can be set, so the file descriptor is redirected.
    """
    os.environ.update(ENVIRONMENT)
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)


def print_json(value: object) -> None:
    """Print a JSON object on one line."""
    sys.stdout.write(json.dumps(value) + "\n")


def find_run(store: Store, pipeline: str | None, reference: str) -> Run:
    """Return the run that a user refers to.

    Args:
      store: The store to search.
      pipeline: Name of the pipeline whose runs are searched. If None, the runs of all pipelines are.
      reference: The ID of the run, a prefix of the ID, or `latest`.

    Raises:
      InputError: No run matches, or the prefix matches several runs.
    """
    runs = store.runs(pipeline, 1) if reference == LATEST else store.runs_like(reference, pipeline)
    exact = [run for run in runs if run.name == reference]
    if len(exact or runs) == 1:
        return (exact or runs)[0]
    if runs:
        raise InputError(
            f"the ids of several runs begin with {reference!r}: {', '.join(run.name for run in runs[:5])}",
            "write more characters of the id",
        )
    newest = [run.name for run in store.runs(pipeline, 20)]
    raise InputError(
        f"there is no run {reference!r}{did_you_mean(reference, newest) if newest else ''}",
        f"the newest is {newest[0]}; `python runner.py runs` lists them" if newest else "run the pipeline first",
    )
