"""Maintenance of a metadata store: copies, migration to this release's schema, and marking artifacts as deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from ml_metadata.proto import metadata_store_pb2 as proto

from components.errors import InputError
from pipeline.core.metadata import connection
from pipeline.core.metadata.connection import connect, open_existing
from pipeline.core.metadata.location import Database, Location, exists
from pipeline.core.metadata.sql import SCHEMA_VERSION, NoTablesError, Tables

_TABLES = (
    *("Type", "ParentType", "TypeProperty", "Context", "ContextProperty", "ParentContext"),
    *("Execution", "ExecutionProperty", "Artifact", "ArtifactProperty"),
    *("Event", "EventPath", "Association", "Attribution"),
)
"""All tables of ML Metadata, except the one with the schema version."""
_DUMP = {
    "postgresql": "pg_dump --file=metadata.sql --host={0.host} --port={0.port} --username={0.user} {0.name}",
    "mysql": "mariadb-dump --result-file=metadata.sql --host={0.host} --port={0.port} -u {0.user} -p {0.name}",
}


def copy(location: Location, file: Path) -> None:
    """Copies a store into a new SQLite file; a missing store is not copied.

    Args:
      location: of the store.
      file: does not exist yet.

    Raises:
      MachineError: the store cannot be read.
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
            # Each backend has these columns in another order, and some have more.
            columns = ", ".join(name for _, name, *_ in target.execute(f"PRAGMA table_info({table})"))
            rows = tables.rows(f"SELECT {columns} FROM {table}")  # noqa: S608 - names of ours and ML Metadata's
            target.execute(f"DELETE FROM {table}")  # noqa: S608
            if rows:
                placeholders = ", ".join("?" * len(rows[0]))
                target.executemany(f"INSERT INTO {table} ({columns}) VALUES ({placeholders})", rows)  # noqa: S608
        target.commit()


def migrate(location: Location, backed_up: bool = False) -> tuple[int, Path | None]:
    """Upgrades a store to this release's schema version. Call it only when no run is active.

    Args:
      location: the store. A file is first copied to a file in the same folder.
      backed_up: the user has a copy of the database; the database of a server is not copied here.

    Returns:
      The version that it had, and the path of its copy; None for a server, and for a store that is up to date.

    Raises:
      InputError: the store is on a server and `backed_up` is false, or a copy of an earlier migration exists.
      MachineError: the store cannot be opened or migrated, or is newer than this release.
    """
    version = Tables(location, oldest=0).version
    if version == SCHEMA_VERSION:
        return version, None
    copied = None
    if isinstance(location, Database):
        if not backed_up:
            raise InputError(
                f"{location} would be migrated from schema version {version} to {SCHEMA_VERSION}: "
                "expected a copy of it and --backed-up, received no --backed-up",
                f"make one, such as with `{_DUMP[location.backend].format(location)}`, then add --backed-up",
            )
    else:
        copied = _back_up(location, version)
    connection.migrate(location)
    return version, copied


def mark_deleted(location: Location, ids: Iterable[int]) -> None:
    """Sets the state of artifacts to DELETED.

    Args:
      location: the store.
      ids: numbers of artifacts.

    Raises:
      MachineError: the store cannot be opened.
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
    # SQLite writes the file itself, so it is renamed here and not by components.files.
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as destination:
        source.backup(destination)
    return partial.rename(target)
