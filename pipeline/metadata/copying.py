"""Copies a whole store into an SQLite file, for who wants to try something that must not touch it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from pipeline.metadata.connection import connect
from pipeline.metadata.database import Location, exists
from pipeline.metadata.tables import NoTablesError, Tables

_TABLES = (
    *("Type", "ParentType", "TypeProperty", "Context", "ContextProperty", "ParentContext"),
    *("Execution", "ExecutionProperty", "Artifact", "ArtifactProperty"),
    *("Event", "EventPath", "Association", "Attribution"),
)
"""All of ML Metadata's, but for the one that holds its version."""


def copy(location: Location, file: Path) -> None:
    """Copies a store, if there is one.

    Args:
      location: of the store.
      file: that is not there yet.

    Raises:
      MachineError: it cannot be read.
    """
    if isinstance(location, Path):
        if exists(location):
            with (
                closing(sqlite3.connect(f"{location.absolute().as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(file)) as target,
            ):
                source.backup(target)
        return
    try:
        tables = Tables(location)
    except NoTablesError:
        return
    connect(file)
    with closing(sqlite3.connect(file)) as target:
        for table in _TABLES:
            # Every backend has these columns in an order of its own, and a few have more.
            columns = ", ".join(name for _, name, *_ in target.execute(f"PRAGMA table_info({table})"))
            rows = tables.rows(f"SELECT {columns} FROM {table}")  # noqa: S608 - names of ours and ML Metadata's
            target.execute(f"DELETE FROM {table}")  # noqa: S608
            if rows:
                places = ", ".join("?" * len(rows[0]))
                target.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows)  # noqa: S608
        target.commit()
