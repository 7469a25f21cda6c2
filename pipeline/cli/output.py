"""Shared by the verbs that read metadata: printed tables, and the selection of a run."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from components.compat.tensorflow import ENVIRONMENT
from components.errors import InputError
from components.names import did_you_mean
from pipeline.core.metadata.store import Run, Store

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

LATEST = "latest"


def table(*columns: str) -> Table:
    """Returns an empty table with these columns, without borders."""
    from rich.table import Table

    empty = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        empty.add_column(column)
    return empty


def show(*renderables: RenderableType) -> None:
    """Prints tables, trees and texts; square brackets are text, not markup."""
    from rich.console import Console

    # Wide on a pipe, so that no column is cut.
    width = None if sys.stdout.isatty() else 400
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True, width=width)
    for each in renderables:
        console.print(each)


@contextmanager
def suppress_native_stderr() -> Iterator[None]:
    """Suppresses warnings, and everything that libraries write to the process's standard error.

    A stock Evaluator's metrics are read by TFMA, which imports TensorFlow's libraries. Some of them log while they are
    loaded, before any option can be set.
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
    """Prints one JSON object on a line."""
    sys.stdout.write(json.dumps(value) + "\n")


def find_run(store: Store, pipeline: str | None, reference: str) -> Run:
    """Returns a run.

    Args:
      store: with the run.
      pipeline: only its runs; None: of all pipelines.
      reference: the run's id, the beginning of it, or `latest`.

    Raises:
      InputError: there is no such run, or the beginning is ambiguous.
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
