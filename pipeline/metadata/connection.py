"""ML Metadata's own connections, for what TFX does with a store and for what mends one."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2 as proto

from components.errors import MachineError
from pipeline.metadata.database import Database, Location, Tls
from pipeline.metadata.messages import change_all
from pipeline.metadata.store import Store
from pipeline.metadata.tables import NoTablesError, Tables, UnreachableError, remedy
from pipeline.metadata.texts import POSTGRESQL
from pipeline.metadata.tunnel import Tunnel

ConnectionConfig = proto.ConnectionConfig
"""Where a store is, as ML Metadata's library and a compiled pipeline say it."""
RUNNING = proto.Execution.RUNNING
"""The state of an execution that a node is at work on."""

_SQLITE = proto.SqliteMetadataSourceConfig
_PAUSE_SECONDS = 0.2
_FILE_SECONDS = 2.0
"""How long to try: the very first nodes of a new store make its tables side by side, and one of them has to wait."""
_SERVER_SECONDS = 30.0
"""The same for a server, which may be just starting anew."""


def reader(location: Location) -> Store:
    """The store to read; where there is none yet, an empty one is made.

    Raises:
      MachineError: it cannot be opened.
    """
    try:
        return Store(location)
    except MachineError:
        # Not there, or its tables are just being made; what is wrong with any other, this tells.
        connect(location)
    return Store(location)


def config_of(location: Location, mode: int = _SQLITE.READWRITE_OPENCREATE) -> proto.ConnectionConfig:
    """How ML Metadata's library is told to connect; the password is read from the environment.

    Args:
      location: the store.
      mode: of SQLite: READONLY, READWRITE, or READWRITE_OPENCREATE, which makes what is not there.
    """
    config = _told(location, mode)
    if isinstance(location, Database):
        kind = getattr(config, location.backend)
        kind.password = location.password
        if location.tls:
            # Where it goes to is encrypted already.
            place = _tunnel(location).socket
            if location.backend == "postgresql":
                kind.host = str(place.parent)
                kind.ClearField("ssloption")
            else:
                kind.socket = str(place)
                kind.ClearField("host")
                kind.ClearField("ssl_options")
        if location.backend == "postgresql":
            _quote(kind)
    return config


def to_ir(location: Location) -> proto.ConnectionConfig:
    """What stands in a compiled pipeline: no password, but the name of the variable that holds it, after a `$`."""
    config = _told(location, _SQLITE.READWRITE_OPENCREATE)
    if isinstance(location, Database):
        getattr(config, location.backend).password = f"${location.password_env}"
    return config


def from_ir(config: proto.ConnectionConfig) -> Location:
    """Where a compiled pipeline says that its store is."""
    backend = config.WhichOneof("config")
    kind = getattr(config, backend)
    if backend == "sqlite":
        return Path(kind.filename_uri)
    variable = kind.password.removeprefix("$")
    if backend == "postgresql":
        tls = _tls(kind.ssloption.sslrootcert, kind.ssloption.sslcert, kind.ssloption.sslkey)
        return Database(backend, kind.host, int(kind.port), kind.dbname, kind.user, variable, tls)
    tls = _tls(kind.ssl_options.ca, kind.ssl_options.cert, kind.ssl_options.key)
    return Database(backend, kind.host, kind.port, kind.database, kind.user, variable, tls)


def connect(location: Location, mode: int = _SQLITE.READWRITE_OPENCREATE) -> Patient:
    """An open store.

    Args:
      location: the store.
      mode: of SQLite, as for `config_of`.

    Raises:
      MachineError: it cannot be opened, also not after a few attempts.
    """
    deadline = 0.0
    while True:
        try:
            return Patient(location, mode)
        except (RuntimeError, mlmd.errors.StatusError) as error:
            with contextlib.suppress(NoTablesError, UnreachableError):
                # What waiting will not help against, this tells at once, and better: a wrong password, or version.
                Tables(location)
            # From the first failure on: while somebody has locked a file, an attempt alone takes half a minute.
            deadline = deadline or time.monotonic() + (_FILE_SECONDS if isinstance(location, Path) else _SERVER_SECONDS)
            if time.monotonic() > deadline:
                told = " ".join(str(error).split())
                raise MachineError(
                    f"the metadata store {location} cannot be opened: {told}", _remedy(location)
                ) from error
            time.sleep(_PAUSE_SECONDS)


class Patient(mlmd.MetadataStore):  # type: ignore[misc]
    """ML Metadata's store, which connects anew where the server has gone in between.

    Each of its calls is one transaction, which a server that goes away rolls back: so it can be called again.
    """

    def __init__(self, location: Location, mode: int, migrate: bool = False) -> None:
        super().__init__(config_of(location, mode), enable_upgrade_migration=migrate)
        self._location = location

    def _call_method(self, method_name: str, request: Any, response: Any) -> None:
        if isinstance(self._location, Database) and self._location.backend == "postgresql":
            # What is asked belongs to whoever asks, and may be asked again.
            hidden = type(request)()
            hidden.CopyFrom(request)
            change_all(hidden, POSTGRESQL.hide)
            self._call_again(method_name, hidden, response)
            change_all(response, POSTGRESQL.reveal)
        else:
            self._call_again(method_name, request, response)
        _put_in_order(request, response)

    def _call_again(self, method_name: str, request: Any, response: Any) -> None:
        try:
            super()._call_method(method_name, request, response)
        except mlmd.errors.AbortedError:
            # It was rolled back, on a file because somebody has it locked, a backup say: the library tries five times,
            # within some seconds, but who reads waits for its release, half a minute long.
            if isinstance(self._location, Path):
                Tables(self._location)
            super()._call_method(method_name, request, response)
        except mlmd.errors.InternalError:
            if isinstance(self._location, Path):
                raise
            # The library says the same of a server that has gone and of a question that is wrong: that one will be
            # told again.
            self.__dict__.update(connect(self._location).__dict__)
            super()._call_method(method_name, request, response)


def migrate(location: Location) -> None:
    """Brings a store's schema up to the library's.

    Raises:
      MachineError: that did not work.
    """
    try:
        Patient(location, _SQLITE.READWRITE, migrate=True)
    except (RuntimeError, mlmd.errors.StatusError) as error:
        told = " ".join(str(error).split())
        raise MachineError(
            f"the metadata store {location} cannot be migrated: {told}", "put the copy back, and keep it as it is"
        ) from error


def writable(location: Location) -> Patient:
    """An open store, for who changes what is there.

    Raises:
      MachineError: it cannot be opened.
    """
    return connect(location, _SQLITE.READWRITE)


def read_only(location: Location) -> proto.ConnectionConfig:
    """A connection that changes nothing in an SQLite file, and makes none; a server's user may be given such rights."""
    return config_of(location, _SQLITE.READONLY)


def _put_in_order(request: Any, response: Any) -> None:
    """Puts what was found by numbers into the order of these, and other things into that of theirs.

    The library leaves the order to the database. TFX pairs a cached node's outputs with their names by it: well on
    SQLite, which sorts by number, but on PostgreSQL, where whatever was changed last comes last, it hands them on under
    each other's names.
    """
    for kind in ("artifact", "execution", "context"):
        several: Any = getattr(response, f"{kind}s", ())
        places = {number: place for place, number in enumerate(getattr(request, f"{kind}_ids", ()))}
        # With options, ML Metadata has the database sort.
        if len(several) > 1 and (places or "options" not in (field.name for field, _ in request.ListFields())):
            several.sort(key=functools.partial(_place, places))


def _place(places: Mapping[int, int], found: Any) -> int:
    return places.get(found.id, found.id)


@functools.cache
def _tunnel(database: Database) -> Tunnel:
    """One for all of a process's connections."""
    return Tunnel(database)


def _told(location: Location, mode: int) -> proto.ConnectionConfig:
    config = proto.ConnectionConfig()
    if isinstance(location, Path):
        config.sqlite.filename_uri = str(location)
        config.sqlite.connection_mode = mode
        return config
    kind = getattr(config, location.backend)
    kind.host, kind.user, kind.skip_db_creation = location.host, location.user, True
    tls = location.tls
    if location.backend == "postgresql":
        kind.port, kind.dbname = str(location.port), location.name
        if tls:
            kind.ssloption.sslmode, kind.ssloption.sslrootcert = "verify-full", tls.ca
            kind.ssloption.sslcert, kind.ssloption.sslkey = tls.certificate or "", tls.key or ""
    else:
        kind.port, kind.database = location.port, location.name
        if tls:
            kind.ssl_options.ca, kind.ssl_options.verify_server_cert = tls.ca, True
            kind.ssl_options.cert, kind.ssl_options.key = tls.certificate or "", tls.key or ""
    return config


def _tls(ca: str, certificate: str, key: str) -> Tls | None:
    return Tls(ca, certificate or None, key or None) if ca else None


def _quote(kind: proto.PostgreSQLDatabaseConfig) -> None:
    """Quotes the texts as a connection string of libpq wants them: ML Metadata puts them together as they are."""
    for field, value in kind.ListFields():
        if isinstance(value, str):
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            setattr(kind, field.name, f"'{escaped}'")


def _remedy(location: Location) -> str:
    if isinstance(location, Path):
        return "move it away (its runs are forgotten then), or name another folder with --output DIR"
    return remedy(location)
