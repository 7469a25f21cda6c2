"""Connections of ML Metadata's own library to a store, for TFX and for every change of a store.

`RetryingStore` repeats a call whose server went away, gives PostgreSQL texts that the library can send, and puts
results into a defined order. `cancel` closes the executions that a process left open when it ended.
Code that only reads uses `store.Store`, which needs no protobuf.
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

from components import recorded_config
from components.compat.mlmd import InterceptedStore
from components.errors import MachineError
from pipeline.core.metadata.location import Database, Location
from pipeline.core.metadata.sql import POSTGRESQL, NoTablesError, Tables, UnreachableError, locked, remedy
from pipeline.core.metadata.store import RUN_CONTEXT, Execution, Store

ConnectionConfig = proto.ConnectionConfig
"""The address of a store, as ML Metadata's library and a compiled pipeline have it."""

_SQLITE = proto.SqliteMetadataSourceConfig
_PAUSE_SECONDS = 0.2
_FILE_SECONDS = 2.0
"""How long to try: the first nodes of a new store create its tables at the same time, and one of them has to wait."""
_SERVER_SECONDS = 30.0
"""The same for a server, which may be restarting."""
_FILE_ATTEMPTS, _SERVER_ATTEMPTS = 2, 9
"""How often a transaction is tried that was rolled back."""
_UNFINISHED = ("NEW", "RUNNING")


def reader(location: Location) -> Store:
    """Opens a store for reading; creates an empty store where there is none.

    Raises:
      MachineError: the store cannot be opened.
    """
    try:
        return Store(location)
    except MachineError:
        # The store is missing, or its tables are being created; `connect` reports any other error.
        connect(location)
    return Store(location)


def connection_config(location: Location, mode: int = _SQLITE.READWRITE_OPENCREATE) -> proto.ConnectionConfig:
    """Returns the connection of ML Metadata's library to a store; the password is read from the environment.

    Args:
      location: the store.
      mode: of SQLite: READWRITE, or READWRITE_OPENCREATE, which creates a missing file.
    """
    config = _config_without_password(location, mode)
    if isinstance(location, Database):
        backend = getattr(config, location.backend)
        backend.password = location.password
        if location.backend == "postgresql":
            _quote(backend)
    return config


def to_ir(location: Location) -> proto.ConnectionConfig:
    """Returns the connection for a compiled pipeline: `$VARIABLE`, the password's variable, replaces the password."""
    config = _config_without_password(location, _SQLITE.READWRITE_OPENCREATE)
    if isinstance(location, Database):
        getattr(config, location.backend).password = f"${location.password_env}"
    return config


def from_ir(config: proto.ConnectionConfig) -> Location:
    """Returns the store's location from a compiled pipeline; the reverse of `to_ir`."""
    name = config.WhichOneof("config")
    backend = getattr(config, name)
    if name == "sqlite":
        return Path(backend.filename_uri)
    variable = backend.password.removeprefix("$")
    if name == "postgresql":
        return Database(name, backend.host, int(backend.port), backend.dbname, backend.user, variable)
    return Database(name, backend.host, backend.port, backend.database, backend.user, variable)


def connect(location: Location, mode: int = _SQLITE.READWRITE_OPENCREATE) -> RetryingStore:
    """Opens a store for changes.

    Args:
      location: the store.
      mode: of SQLite, as for `connection_config`.

    Raises:
      MachineError: the store could not be opened within the retry period (2 s for a file, 30 s for a server).
    """
    deadline = 0.0
    while True:
        try:
            return RetryingStore(location, mode)
        except (RuntimeError, mlmd.errors.StatusError) as error:
            with contextlib.suppress(NoTablesError, UnreachableError):
                # Raises at once, with a clearer message, where a retry does not help: a wrong password, or version.
                Tables(location)
            # Counted from the first failure: while another process locks a file, one attempt takes half a minute.
            deadline = deadline or time.monotonic() + (_FILE_SECONDS if isinstance(location, Path) else _SERVER_SECONDS)
            if time.monotonic() > deadline:
                raise MachineError(
                    f"the metadata store {location} cannot be opened: {_one_line(error)}", _open_remedy(location)
                ) from error
            time.sleep(_PAUSE_SECONDS)


def open_existing(location: Location) -> RetryingStore:
    """Opens an existing store for changes.

    Raises:
      MachineError: the store is missing or cannot be opened.
    """
    return connect(location, _SQLITE.READWRITE)


class RetryingStore(InterceptedStore):
    """ML Metadata's store for several processes: repeats a call that was rolled back, and inserts each row once.

    Each call is one transaction. It is rolled back when the server is lost, and when MariaDB (from 11.6) finds that
    another transaction changed what it read; ML Metadata itself repeats only deadlocks.
    """

    def __init__(self, location: Location, mode: int, migrate: bool = False) -> None:
        with _file_locked(location):
            super().__init__(connection_config(location, mode), enable_upgrade_migration=migrate)
        self._location = location

    def call(self, method_name: str, request: Message, response: Message) -> None:
        """Sends one request, again if the connection was lost; see `InterceptedStore.call`."""
        if isinstance(self._location, Database) and self._location.backend == "postgresql":
            # The caller may use its message again, so a copy is changed.
            encoded = type(request)()
            encoded.CopyFrom(request)
            change_all(encoded, POSTGRESQL.encode)
            self._call_with_retry(method_name, encoded, response)
            change_all(response, POSTGRESQL.decode)
        else:
            self._call_with_retry(method_name, request, response)
        _put_in_order(request, response)

    def _call_with_retry(self, method_name: str, request: Message, response: Message) -> None:
        attempts = _FILE_ATTEMPTS if isinstance(self._location, Path) else _SERVER_ATTEMPTS
        for attempt in range(1, attempts + 1):
            try:
                with _file_locked(self._location), _insert_locked(self._location, method_name):
                    super().call(method_name, request, response)
                break
            except (mlmd.errors.AbortedError, mlmd.errors.InternalError) as error:
                is_repeatable = isinstance(self._location, Database) or isinstance(error, mlmd.errors.AbortedError)
                if attempt == attempts or not is_repeatable:
                    raise
                self._prepare_repetition()

    def _prepare_repetition(self) -> None:
        if isinstance(self._location, Path):
            # Another process, such as a backup, has locked the file. The library has repeated the call for seconds; a
            # read waits for the lock, up to half a minute.
            Tables(self._location)
            return
        # The library raises the same error for a lost server, a transaction to be repeated, and an invalid request; the
        # last fails each time. Different pauses, also in forks of one process, separate the transactions.
        time.sleep(random.SystemRandom().uniform(0, _PAUSE_SECONDS))
        self.take_connection(connect(self._location))


@contextlib.contextmanager
def _file_locked(location: Location) -> Iterator[None]:
    """Lets the nodes that run side by side wait for each other's transactions on a file, which take milliseconds.

    Without it, ML Metadata repeats a transaction that finds the file locked after tenths of a second. The lock is on
    the folder, so that there is no further file; where folders cannot be locked, as on NFS, nodes do not wait.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(location, Path):
            with contextlib.suppress(OSError):
                folder = os.open(location.parent, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, folder)
                fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def _insert_locked(location: Location, method_name: str) -> contextlib.AbstractContextManager[None]:
    """Let processes that insert what others may insert as well do so one after the other, on a server.

    - Types: ML Metadata looks for a type, then inserts it. The tables' unique key does not prevent a second row, since
      types have no version (NULL); artifacts of one row are then not found as artifacts of the other.
    - Attributions and associations with a context: ML Metadata ignores that a row exists, but PostgreSQL has ended the
      transaction with the error, and its commit rolls everything back. The library returns the number of an execution
      that does not exist.
    """
    if isinstance(location, Database) and re.fullmatch(
        "Put(.*Types?|Execution|LineageSubgraph|AttributionsAndAssociations)", method_name
    ):
        return locked(location)
    return contextlib.nullcontext()


def migrate(location: Location) -> None:
    """Upgrades a store's schema to the library's version.

    Raises:
      MachineError: the migration failed.
    """
    try:
        RetryingStore(location, _SQLITE.READWRITE, migrate=True)
    except (RuntimeError, mlmd.errors.StatusError) as error:
        raise MachineError(
            f"the metadata store {location} cannot be migrated: {_one_line(error)}",
            "restore it from the copy; do not delete the copy",
        ) from error


def unfinished(location: Location, run: str) -> list[Execution]:
    """Returns the executions of a run that have begun and not ended.

    Args:
      location: the store.
      run: the run's id.
    """
    return [execution for execution in reader(location).executions(run) if execution.state in _UNFINISHED]


def cancel(location: Location, unfinished: Sequence[Execution]) -> None:
    """Marks unfinished executions CANCELED and their pending artifacts ABANDONED.

    TFX resumes CANCELED executions under the same run id. Call it only when none of their processes is alive.

    Args:
      location: the store.
      unfinished: the executions.
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
    """Replaces the config in the context of a run.

    Args:
      location: the store.
      run: the run's ID.
      config: the text of the config.
    """
    store = open_existing(location)
    context = store.get_context_by_type_and_name(RUN_CONTEXT, run)
    # Parts of a longer text must not remain behind the new one.
    for name in recorded_config.parts(recorded_config.joined(_texts(context)) or ""):
        context.custom_properties.pop(name, None)
        context.properties.pop(name, None)
    for name, part in recorded_config.parts(config).items():
        context.custom_properties[name].string_value = part
    store.put_contexts([context])


def _texts(context: proto.Context) -> dict[str, str]:
    values = {**context.properties, **context.custom_properties}
    return {name: value.string_value for name, value in values.items()}


def change_all(message: Message, change: Callable[[str], str]) -> None:
    """Changes every text in a protobuf message, in place.

    Args:
      message: may contain messages, lists and maps to any depth.
      change: is applied to each text.
    """
    for field, value in message.ListFields():
        if isinstance(value, Message):
            change_all(value, change)
        elif isinstance(value, str):
            setattr(message, field.name, change(value))
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            _change_map(value, field.message_type.fields_by_name["value"], change)
        elif field.message_type is not None:
            for each in value:
                change_all(each, change)
        elif field.type == field.TYPE_STRING:
            value[:] = [change(each) for each in value]


def _change_map(values: MutableMapping[str, Any], field: FieldDescriptor, change: Callable[[str], str]) -> None:
    """Changes a map's values, and its keys: the names of properties are texts, too."""
    for key in list(values):
        if field.message_type is None:
            if change(key) != key:
                values[change(key)] = values.pop(key)
            continue
        change_all(values[key], change)
        if change(key) != key:
            values[change(key)].CopyFrom(values[key])
            del values[key]


def _put_in_order(request: Message, response: Message) -> None:
    """Sorts the results of a request by ids in the order of these ids, and other results by id.

    The library leaves the order to the database. TFX pairs a cached node's outputs with their names by position: that
    works on SQLite, which sorts by id. PostgreSQL returns the last changed row last, and TFX would exchange outputs.
    """
    for kind in ("artifact", "execution", "context"):
        results: Any = getattr(response, f"{kind}s", ())
        positions = {number: position for position, number in enumerate(getattr(request, f"{kind}_ids", ()))}
        # With options, ML Metadata lets the database sort.
        if len(results) > 1 and (positions or "options" not in (field.name for field, _ in request.ListFields())):
            results.sort(key=functools.partial(_position, positions))


def _position(positions: Mapping[int, int], result: Any) -> int:
    return positions.get(result.id, result.id)


def _config_without_password(location: Location, mode: int) -> proto.ConnectionConfig:
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


def _quote(backend: proto.PostgreSQLDatabaseConfig) -> None:
    """Quotes the values for a connection string of libpq, which ML Metadata builds without quotes."""
    for field, value in backend.ListFields():
        if isinstance(value, str):
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            setattr(backend, field.name, f"'{escaped}'")


def _open_remedy(location: Location) -> str:
    if isinstance(location, Path):
        return "move the file away (its runs are lost to the pipeline), or name another folder with --output DIR"
    return remedy(location)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _is_output(event: proto.Event) -> bool:
    return event.type in (proto.Event.OUTPUT, proto.Event.PENDING_OUTPUT)
