"""Brings a store that an older release has made up to this release's schema, never without a copy."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from components.errors import InputError
from pipeline.metadata import connection
from pipeline.metadata.database import Database, Location
from pipeline.metadata.tables import SCHEMA_VERSION, Tables

_DUMP = {
    "postgresql": "pg_dump --file=metadata.sql --host={0.host} --port={0.port} --username={0.user} {0.name}",
    "mysql": "mariadb-dump --result-file=metadata.sql --host={0.host} --port={0.port} -u {0.user} -p {0.name}",
}


def migrate(location: Location, backed_up: bool = False) -> tuple[int, Path | None]:
    """Migrates a store. Call it only when no run is going on.

    Args:
      location: the store. A file is copied beside itself first.
      backed_up: that whoever asks has a copy of the database, which for a server is not made here.

    Returns:
      The version that it had, and where its copy is; no copy for a server, and for what is up to date already.

    Raises:
      InputError: it is on a server, and nobody says that there is a copy.
      MachineError: it cannot be opened or migrated, or is newer than this release.
    """
    version = Tables(location, oldest=0).version
    if version == SCHEMA_VERSION:
        return version, None
    copy = None
    if isinstance(location, Database):
        if not backed_up:
            raise InputError(
                f"{location} would be migrated from schema version {version} to {SCHEMA_VERSION}: "
                "expected a copy of it, received no word of one",
                f"make one, such as with `{_DUMP[location.backend].format(location)}`, then add --backed-up",
            )
    else:
        copy = _copied(location, version)
    connection.migrate(location)
    return version, copy


def _copied(path: Path, version: int) -> Path:
    copy = path.with_name(f"{path.name}.version-{version}")
    if copy.exists():
        raise InputError(
            f"{copy} is there already, from an earlier try to migrate", "move it elsewhere, then migrate again"
        )
    beside = copy.with_name(f"{copy.name}.partial")
    beside.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(beside)) as target:
        source.backup(target)
    return beside.rename(copy)
