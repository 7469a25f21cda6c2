"""Maintenance of a metadata store: copy it, migrate its schema, and mark artifacts as deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from ml_metadata.proto import metadata_store_pb2 as proto

from components.base.errors import InputError
from pipeline.core.metadata import connection
from pipeline.core.metadata.connection import connect, open_existing
from pipeline.core.metadata.location import Database, Location, exists
from pipeline.core.metadata.sql import SCHEMA_VERSION, NoTablesError, Tables

_TABLES = (
    *("Type", "ParentType", "TypeProperty", "Context", "ContextProperty", "ParentContext"),
    *("Execution", "ExecutionProperty", "Artifact", "ArtifactProperty"),
    *("Event", "EventPath", "Association", "Attribution"),
)
"""All tables of ML Metadata except MLMDEnv, which contains the schema version."""
_DUMP = {
    "postgresql": "pg_dump --file=metadata.sql --host={0.host} --port={0.port} --username={0.user} {0.name}",
    "mysql": "mariadb-dump --result-file=metadata.sql --host={0.host} --port={0.port} -u {0.user} -p {0.name}",
}


def copy(location: Location, file: Path) -> None:
    """Copy a store into a new SQLite file. Do nothing if the store does not exist.

    Args:
      location: Location of the store.
      file: Path of the new file, which must not exist yet.

    Raises:
      MachineError: The store cannot be read.
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
            # Name the columns, because their order differs between backends, and some backends have additional columns.
            columns = ", ".join(name for _, name, *_ in target.execute(f"PRAGMA table_info({table})"))
            rows = tables.rows(f"SELECT {columns} FROM {table}")  # noqa: S608 - constant names of tables and columns
            target.execute(f"DELETE FROM {table}")  # noqa: S608
            if rows:
                placeholders = ", ".join("?" * len(rows[0]))
                target.executemany(f"INSERT INTO {table} ({columns}) VALUES ({placeholders})", rows)  # noqa: S608
        target.commit()


def migrate(location: Location, backed_up: bool = False) -> tuple[int, Path | None]:
    """Upgrade a store to the schema version of this release. Call this only while no run is active.

    Args:
      location: Location of the store. A file is first copied to a file in the same folder.
      backed_up: Whether the user has a copy of the database. This function does not copy a database on a server.

    Returns:
      The earlier schema version, and the path of the copy (None for a server, and for a store that is up to date).

    Raises:
      InputError: The store is on a server and `backed_up` is false, or a copy of an earlier migration exists.
      MachineError: The store cannot be opened or migrated, or its schema is newer than this release.
    """
    version = Tables(location, oldest=0).version
    if version == SCHEMA_VERSION:
        return version, None
    backup = None
    if isinstance(location, Database):
        if not backed_up:
            raise InputError(
                f"{location} would be migrated from schema version {version} to {SCHEMA_VERSION}: "
                "expected a copy of it and --backed-up, received no --backed-up",
                f"back it up, for example with `{_DUMP[location.backend].format(location)}`, then add --backed-up",
            )
    else:
        backup = _back_up(location, version)
    connection.migrate(location)
    return version, backup


def mark_deleted(location: Location, ids: Iterable[int]) -> None:
    """Set the state of artifacts to DELETED.

    Args:
      location: Location of the store.
      ids: IDs of the artifacts.

    Raises:
      MachineError: The store cannot be opened.
    """
    store = open_existing(location)
    artifacts = store.get_artifacts_by_id(list(ids))
    for artifact in artifacts:
        artifact.state = proto.Artifact.DELETED
    if artifacts:
        store.put_artifacts(artifacts)


def _back_up(path: Path, version: int) -> Path:
    target = path.with_name(f"{path.name}.version-{version}")
    if target.exists():
        raise InputError(
            f"{target}: expected no file, received a copy from an earlier migration",
            "move it elsewhere, then migrate again",
        )
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    # Rename the file here instead of using components.base.files, because SQLite writes the file itself.
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as destination:
        source.backup(destination)
    return partial.rename(target)
