"""Tells within milliseconds, and without TFX, whether a metadata store can be opened."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from components.errors import MachineError
from pipeline.metadata.database import Location, exists
from pipeline.metadata.tables import NoTablesError, Tables

_REMEDY = "move it away (its runs are forgotten then), or name another folder with --output DIR"


def check_store(location: Location) -> None:
    """Checks that a run could read and write a store; one that is not there yet is fine.

    Nothing is created or changed.

    Raises:
      MachineError: it is a directory, no SQLite database, damaged, or may not be written; the server does not answer,
        or refuses the user; or the store has another schema version than this release's.
    """
    if isinstance(location, Path):
        _check_file(location)
    with contextlib.suppress(NoTablesError):
        if exists(location):
            Tables(location)


def _check_file(path: Path) -> None:
    if not path.exists():
        _check_parent(path)
        return
    if path.is_dir():
        raise MachineError(
            f"the metadata store {path} cannot be opened: expected a file, received a directory", _REMEDY
        )
    if not os.access(path, os.R_OK | os.W_OK):
        raise _unwritable(path)
    try:
        # mode=rw never creates a file; reading the schema's version makes SQLite look at the header.
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=5)
        ) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        raise MachineError(f"the metadata store {path} cannot be opened: {error}", _REMEDY) from error


def _check_parent(path: Path) -> None:
    """The nearest folder that exists has to take the new file."""
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise MachineError(
            f"the metadata store {path} cannot be opened: {parent} is a file, expected a folder", _REMEDY
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise _unwritable(path)


def _unwritable(path: Path) -> MachineError:
    return MachineError(
        f"the metadata store {path} cannot be opened: this user may not write it",
        "give this user the right to write there, or name another folder with --output DIR",
    )
