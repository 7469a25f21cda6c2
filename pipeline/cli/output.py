"""Printing of tables and JSON, for the commands that read metadata."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from components.compat.tensorflow import ENVIRONMENT

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def make_table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    """Return an empty table without borders.

    Args:
      columns: Headers of the first columns.
      numbers: Headers of further columns, which are right-aligned.
    """
    from rich.table import Table

    empty = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        empty.add_column(column)
    for column in numbers:
        empty.add_column(column, justify="right")
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
