"""Connections to a store with ML Metadata's library, for TFX and for every change of a store.

`RetryingStore` retries a call whose server went away, encodes texts for PostgreSQL so that the library can send them,
and sorts results. `cancel` closes the executions that a process left open when it ended. Code that only reads uses
`store.Store`, which does not need protobuf.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import ml_metadata as mlmd
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from ml_metadata.proto import metadata_store_pb2 as proto

from components.base import recorded_config
from components.base.errors import MachineError
from components.compat.mlmd import InterceptedStore
from pipeline.core.artifact_copies import ArtifactCopies
from pipeline.core.metadata.location import Database, Location
from pipeline.core.metadata.sql import (
    POSTGRESQL,
    NoTablesError,
    Tables,
    UnreachableError,
    choose_remedy,
    hold_advisory_lock,
)
from pipeline.core.metadata.store import RUN_CONTEXT, Execution, Store

ConnectionConfig = proto.ConnectionConfig
"""The location of a store as a protobuf message, for ML Metadata's library and in compiled pipelines."""

_SQLITE = proto.SqliteMetadataSourceConfig
_PAUSE_SECONDS = 0.2
_FILE_SECONDS = 2.0
"""Time in seconds to retry opening a file. The first nodes of a new store create its tables at the same time, and all
of them except one fail at first."""
_SERVER_SECONDS = 30.0
"""Time in seconds to retry connecting to a server, which may be restarting."""
_FILE_ATTEMPTS, _SERVER_ATTEMPTS = 2, 9
"""Maximum number of attempts at a transaction that is rolled back."""
_UNFINISHED = ("NEW", "RUNNING")


def open_reader(location: Location, copies: str | None = None) -> Store:
    """Open a store for reading; create an empty store if it does not exist.

    Args:
      location: Location of the store.
      copies: Folder with copies of artifacts; see `Store`.

    Raises:
      MachineError: The store cannot be opened.
    """
    try:
        return Store(location, copies)
    except MachineError:
        # The store does not exist, or another process is creating its tables. `connect` raises for any other error.
        connect(location)
    return Store(location, copies)


def make_connection_config(location: Location, mode: int = _SQLITE.READWRITE_OPENCREATE) -> proto.ConnectionConfig:
    """Return the connection config for ML Metadata's library, with the password from the environment.

    Args:
      location: Location of the store.
      mode: Mode of an SQLite file: READWRITE, or READWRITE_OPENCREATE, which creates a missing file.
    """
    config = _make_config_without_password(location, mode)
    if isinstance(location, Database):
        backend = getattr(config, location.backend)
        backend.password = location.password
        if location.backend == "postgresql":
            _quote_values(backend)
    return config


def to_ir(location: Location) -> proto.ConnectionConfig:
    """Return the connection config for a compiled pipeline.

    In place of the password it contains `$` and the name of the password's environment variable.
    """
    config = _make_config_without_password(location, _SQLITE.READWRITE_OPENCREATE)
    if isinstance(location, Database):
        getattr(config, location.backend).password = f"${location.password_env}"
    return config


def from_ir(config: proto.ConnectionConfig) -> Location:
    """Return the location of the store of a compiled pipeline; the inverse of `to_ir`."""
    name = config.WhichOneof("config")
    backend = getattr(config, name)
    if name == "sqlite":
        return Path(backend.filename_uri)
    variable = backend.password.removeprefix("$")
    if name == "postgresql":
        return Database(name, backend.host, int(backend.port), backend.dbname, backend.user, variable)
    return Database(name, backend.host, backend.port, backend.database, backend.user, variable)


def connect(
    location: Location, mode: int = _SQLITE.READWRITE_OPENCREATE, copies: ArtifactCopies | None = None
) -> RetryingStore:
    """Open a store for changes.

    Args:
      location: Location of the store.
      mode: Mode of an SQLite file; see `make_connection_config`.
      copies: Where the artifacts are, if the caller works with copies of them; see `RelocatedStore`.

    Raises:
      MachineError: The store could not be opened within the retry period (2 s for a file, 30 s for a server).
    """
    deadline = 0.0
    while True:
        try:
            return RetryingStore(location, mode) if copies is None else RelocatedStore(location, mode, copies)
        except (RuntimeError, mlmd.errors.StatusError) as error:
            with contextlib.suppress(NoTablesError, UnreachableError):
                # If a retry cannot help, for example after a wrong password, this raises an error with a clear message.
                Tables(location)
            # Measure from the first failure, because an attempt takes half a minute while a process locks the file.
            deadline = deadline or time.monotonic() + (_FILE_SECONDS if isinstance(location, Path) else _SERVER_SECONDS)
            if time.monotonic() > deadline:
                raise MachineError(
                    f"the metadata store {location} cannot be opened: {_format_error(error)}", _choose_remedy(location)
                ) from error
            time.sleep(_PAUSE_SECONDS)


def open_existing(location: Location) -> RetryingStore:
    """Open an existing store for changes.

    Raises:
      MachineError: The store does not exist or cannot be opened.
    """
    return connect(location, _SQLITE.READWRITE)


class RetryingStore(InterceptedStore):
    """ML Metadata's store, safe for several processes: it retries calls that were rolled back, and inserts rows once.

    Each call is one transaction. The transaction is rolled back when the connection to the server is lost, and by
    MariaDB (from 11.6) when another transaction has changed rows that it read. ML Metadata itself retries only
    deadlocks.
    """

    def __init__(self, location: Location, mode: int, migrate: bool = False) -> None:
        with _lock_file(location):
            super().__init__(make_connection_config(location, mode), enable_upgrade_migration=migrate)
        self._location = location

    def call(self, method_name: str, request: Message, response: Message) -> None:
        """Send a request, and retry it if it was rolled back; see `InterceptedStore.call`."""
        if isinstance(self._location, Database) and self._location.backend == "postgresql":
            # Encode a copy, because the caller may reuse its message.
            encoded = type(request)()
            encoded.CopyFrom(request)
            change_all(encoded, POSTGRESQL.encode)
            self._call_with_retry(method_name, encoded, response)
            change_all(response, POSTGRESQL.decode)
        else:
            self._call_with_retry(method_name, request, response)
        _sort_results(request, response)

    def _call_with_retry(self, method_name: str, request: Message, response: Message) -> None:
        attempts = _FILE_ATTEMPTS if isinstance(self._location, Path) else _SERVER_ATTEMPTS
        for attempt in range(1, attempts + 1):
            try:
                with _lock_file(self._location), _lock_inserts(self._location, method_name):
                    super().call(method_name, request, response)
                break
            except (mlmd.errors.AbortedError, mlmd.errors.InternalError) as error:
                is_retryable = isinstance(self._location, Database) or isinstance(error, mlmd.errors.AbortedError)
                if attempt == attempts or not is_retryable:
                    raise
                self._prepare_retry()

    def _prepare_retry(self) -> None:
        if isinstance(self._location, Path):
            # Another process, such as a backup, holds SQLite's lock on the file, and the library's own retries are
            # used up. Open the file for reading, which waits up to half a minute for the lock.
            Tables(self._location)
            return
        # The library raises the same error for a lost server, a transaction to retry, and an invalid request, which
        # fails at every attempt. Pauses from the system's random numbers differ between forks of one process too, so
        # that conflicting transactions are not retried at the same moment.
        time.sleep(random.SystemRandom().uniform(0, _PAUSE_SECONDS))
        self.take_connection(connect(self._location))


class RelocatedStore(RetryingStore):
    """A store that contains the URLs of artifacts, for a caller that works with the paths of their copies."""

    def __init__(self, location: Location, mode: int, copies: ArtifactCopies) -> None:
        super().__init__(location, mode)
        self._copies = copies

    def call(self, method_name: str, request: Message, response: Message) -> None:
        """Send a request with URLs in place of paths, and replace them in the response."""
        relocated = type(request)()
        relocated.CopyFrom(request)
        change_all(relocated, self._copies.to_url)
        super().call(method_name, relocated, response)
        change_all(response, self._copies.to_path)


@contextlib.contextmanager
def _lock_file(location: Location) -> Iterator[None]:
    """Hold a lock during a transaction on an SQLite file, so that concurrent nodes wait for each other.

    A transaction takes milliseconds. Without this lock, ML Metadata waits for tenths of a second before it retries a
    transaction that found the file locked. This locks the folder, which avoids a separate lock file. On file systems
    that cannot lock folders, such as NFS, nothing is locked.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(location, Path):
            with contextlib.suppress(OSError):
                folder = os.open(location.parent, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, folder)
                fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def _lock_inserts(location: Location, method_name: str) -> contextlib.AbstractContextManager[None]:
    """Hold a lock on a database server during calls that may insert the same rows as another process.

    - Types: ML Metadata looks for a type, and inserts it if it is missing. The unique key of the table does not prevent
      a second row, because the version of the types is NULL. Queries by type would then miss the artifacts of the
      other row.
    - Attributions and associations with a context: ML Metadata ignores the error that a row exists already, but the
      error has aborted PostgreSQL's transaction, and the commit rolls everything back. The library then returns the ID
      of an execution that does not exist.
    """
    if isinstance(location, Database) and re.fullmatch(
        "Put(.*Types?|Execution|LineageSubgraph|AttributionsAndAssociations)", method_name
    ):
        return hold_advisory_lock(location)
    return contextlib.nullcontext()


def migrate(location: Location) -> None:
    """Upgrade the schema of a store to the version of the library.

    Raises:
      MachineError: The migration failed.
    """
    try:
        RetryingStore(location, _SQLITE.READWRITE, migrate=True)
    except (RuntimeError, mlmd.errors.StatusError) as error:
        raise MachineError(
            f"the metadata store {location} cannot be migrated: {_format_error(error)}",
            "restore it from the copy; do not delete the copy",
        ) from error


def list_unfinished(location: Location, run: str) -> list[Execution]:
    """Return the executions of a run that have started but not ended.

    Args:
      location: Location of the store.
      run: ID of the run.
    """
    return [execution for execution in open_reader(location).executions(run) if execution.state in _UNFINISHED]


def cancel(location: Location, unfinished: Sequence[Execution]) -> None:
    """Mark unfinished executions as CANCELED, and their pending artifacts as ABANDONED.

    TFX resumes CANCELED executions under the same run ID. Call this only when the processes of all these executions
    have ended.

    Args:
      location: Location of the store.
      unfinished: The executions; see `list_unfinished`.
    """
    if not unfinished:
        return
    store = open_existing(location)
    ids = [execution.id for execution in unfinished]
    artifact_ids = {event.artifact_id for event in store.get_events_by_execution_ids(ids) if _is_output(event)}
    pending = [
        artifact
        for artifact in store.get_artifacts_by_id(sorted(artifact_ids))
        if artifact.state == proto.Artifact.PENDING
    ]
    for artifact in pending:
        artifact.state = proto.Artifact.ABANDONED
    if pending:
        store.put_artifacts(pending)
    executions = store.get_executions_by_id(ids)
    for execution in executions:
        execution.last_known_state = proto.Execution.CANCELED
    store.put_executions(executions)


def replace_config(location: Location, run: str, config: str) -> None:
    """Replace the config that is recorded in the context of a run.

    Args:
      location: Location of the store.
      run: ID of the run.
      config: Text of the new config.
    """
    store = open_existing(location)
    context = store.get_context_by_type_and_name(RUN_CONTEXT, run)
    # A config is recorded in parts. Delete all old parts first, because the new config may have fewer.
    for name in recorded_config.parts(recorded_config.join(_read_texts(context)) or ""):
        context.custom_properties.pop(name, None)
        context.properties.pop(name, None)
    for name, part in recorded_config.parts(config).items():
        context.custom_properties[name].string_value = part
    store.put_contexts([context])


def _read_texts(context: proto.Context) -> dict[str, str]:
    values = {**context.properties, **context.custom_properties}
    return {name: value.string_value for name, value in values.items()}


def change_all(message: Message, change: Callable[[str], str]) -> None:
    """Apply a function to every text in a protobuf message, in place.

    Args:
      message: The message. It may contain messages, lists and maps, nested to any depth.
      change: Function that maps each text to its replacement.
    """
    for field, value in message.ListFields():
        if isinstance(value, Message):
            change_all(value, change)
        elif isinstance(value, str):
            setattr(message, field.name, change(value))
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            _change_map(value, field.message_type.fields_by_name["value"], change)
        elif field.message_type is not None:
            for item in value:
                change_all(item, change)
        elif field.type == field.TYPE_STRING:
            value[:] = [change(text) for text in value]


def _change_map(values: MutableMapping[str, Any], field: FieldDescriptor, change: Callable[[str], str]) -> None:
    """Apply a function to the texts in a map's values and to its keys, which are names of properties."""
    for key in list(values):
        if field.message_type is None:
            if change(key) != key:
                values[change(key)] = values.pop(key)
            continue
        change_all(values[key], change)
        if change(key) != key:
            values[change(key)].CopyFrom(values[key])
            del values[key]


def _sort_results(request: Message, response: Message) -> None:
    """Sort the results of a request for IDs in the order of these IDs, and all other results by ID.

    The library does not define the order. TFX matches the outputs of a cached node with their names by position, which
    works with SQLite because it returns rows by ID. PostgreSQL returns the row that changed last at the end, so that
    TFX would swap outputs.
    """
    for kind in ("artifact", "execution", "context"):
        results: Any = getattr(response, f"{kind}s", ())
        positions = {number: position for position, number in enumerate(getattr(request, f"{kind}_ids", ()))}
        # A request with options defines the order of its results, and the database has sorted them.
        if len(results) > 1 and (positions or "options" not in (field.name for field, _ in request.ListFields())):
            results.sort(key=functools.partial(_get_position, positions))


def _get_position(positions: Mapping[int, int], result: Any) -> int:
    return positions.get(result.id, result.id)


def _make_config_without_password(location: Location, mode: int) -> proto.ConnectionConfig:
    config = proto.ConnectionConfig()
    if isinstance(location, Path):
        config.sqlite.filename_uri = str(location)
        config.sqlite.connection_mode = mode
        return config
    backend = getattr(config, location.backend)
    backend.host, backend.user, backend.skip_db_creation = location.host, location.user, True
    if location.backend == "postgresql":
        backend.port, backend.dbname = str(location.port), location.name
    else:
        backend.port, backend.database = location.port, location.name
    return config


def _quote_values(backend: proto.PostgreSQLDatabaseConfig) -> None:
    """Quote the values, in place, for the connection string of libpq, which ML Metadata builds without quotes."""
    for field, value in backend.ListFields():
        if isinstance(value, str):
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            setattr(backend, field.name, f"'{escaped}'")


def _choose_remedy(location: Location) -> str:
    if isinstance(location, Path):
        return "move the file away (its runs are lost to the pipeline), or name another folder with --output DIR"
    return choose_remedy(location)


def _format_error(error: Exception) -> str:
    return " ".join(str(error).split())


def _is_output(event: proto.Event) -> bool:
    return event.type in (proto.Event.OUTPUT, proto.Event.PENDING_OUTPUT)
