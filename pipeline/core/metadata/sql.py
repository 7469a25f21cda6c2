"""Read-only SQL access to ML Metadata's tables in SQLite, PostgreSQL and MySQL, with only the database's driver.

Why not ML Metadata's library: it reads the relations of one execution or artifact at a time, each time from a full
table, and it writes to a store when it opens it. The tables are documented and stable: schema version 10 since 1.14.

Texts on a database server differ from the texts that the library was given, so that `Texts` encodes and decodes them:

- PostgreSQL: the library (seen with release 1.16) has libpq escape a text, removes the first and the last character,
  and adds quotes of its own. For a text with a backslash, libpq's result begins with ` E'` instead of a quote, and the
  statement is no valid SQL. JSON inside JSON, as in TFX's parameters, is full of backslashes. The database therefore
  stores a character of Unicode's private use area in place of each backslash.
- MySQL: the library sends UTF-8, but the server takes it for Latin-1 (Windows-1252, in MySQL). The library reads back
  what it wrote; every other client reads `Ã¼` for `ü`.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from components.errors import MachineError
from pipeline.core.metadata.location import Database, Location

SCHEMA_VERSION = 10
_KEYS_PER_QUERY = 500
"""SQLite accepts at least 999."""
_RECONNECT_SECONDS = 30.0
"""How long to try to connect again to a server whose connection was lost."""
_PAUSE_SECONDS = 0.2
_CONNECT_SECONDS = 10
_LOCKED_SECONDS = 30.0
"""How long a reader waits while a run writes to a file."""
_RESTARTING = ("57P01", "57P02", "57P03")
"""PostgreSQL's codes for a server that stops or starts: admin_shutdown, crash_shutdown, cannot_connect_now."""
_LOST = (1053, 1077, 1152, 1927, 2002, 2003, 2006, 2013, 2055)
"""MySQL's and MariaDB's codes for a server that stops, cannot be reached, or was lost during a query."""
_UNDEFINED_TABLE = "42P01"
_NO_SUCH_TABLE = 1146


class NoTablesError(MachineError):
    """The database exists, but it is no metadata store."""


class UnreachableError(MachineError):
    """The server does not answer at the moment."""


class Tables:
    """The tables of a store; a lost connection to a server is opened again.

    Args:
      location: a file or a database of ML Metadata; it is neither created nor changed.
      oldest: the lowest schema version to accept.

    Attributes:
      version: of the schema.

    Raises:
      NoTablesError: the database is no store. A missing file is a plain MachineError.
      UnreachableError: the server does not answer.
      MachineError: the store cannot be opened, or has another schema version.
    """

    def __init__(self, location: Location, oldest: int = SCHEMA_VERSION) -> None:
        self._location = location
        self._driver = driver(location)
        try:
            self._connection = self._driver.connect()
            # The connection may be replaced: the finalizer closes the one that is open then.
            self._open = [self._connection]
            weakref.finalize(self, _close, self._open, self._driver.errors)
            versions = self._query("SELECT schema_version FROM MLMDEnv", ())
        except self._driver.errors as error:
            message = f"the metadata store {location} cannot be opened: {_message(error)}"
            lost, empty = self._driver.is_lost(error), self._driver.lacks_tables(error)
            kind = UnreachableError if lost else NoTablesError if empty else MachineError
            raise kind(message, remedy(location)) from error
        # The process that creates a store writes the version just after it created the table.
        if not versions:
            raise NoTablesError(f"the metadata store {location} is being created", "try again")
        self.version = int(versions[0][0])
        if not oldest <= self.version <= SCHEMA_VERSION:
            raise _version_error(location, self.version)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Runs a SELECT statement.

        Args:
          query: has a `?` for each value.
          values: int, float or str.

        Returns:
          A tuple for each row.

        Raises:
          MachineError: the file is damaged or stays locked; the server cannot be reached again.
        """
        try:
            try:
                return self._query(query, values)
            except self._driver.errors as error:
                if not self._driver.is_lost(error):
                    raise
                self._reconnect()
                return self._query(query, values)
        except self._driver.errors as error:
            raise MachineError(
                f"the metadata store {self._location} cannot be read: {_message(error)}", remedy(self._location)
            ) from error

    def rows_in(self, query: str, keys: Iterable[Any], *values: Any) -> list[tuple[Any, ...]]:
        """Runs a SELECT statement with a condition `IN (…)` on many keys, in parts of a few hundred keys.

        Args:
          query: has a `?` for each other value, then one `…` for the keys.
          keys: ids or names, each once.
          values: the other values.

        Returns:
          A tuple for each row; the rows of all parts, part by part.
        """
        rows: list[tuple[Any, ...]] = []
        for part in _parts(keys):
            rows += self.rows(query.replace("…", ", ".join("?" * len(part))), *values, *part)
        return rows

    def prefix_condition(self, column: str) -> str:
        """Returns the condition that a column begins with a text; its two values are `prefix_range` of the text."""
        exact = self._driver.bytewise.format(column)
        return f"{exact} >= ? AND {exact} < ?"

    def _query(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        try:
            texts = self._driver.texts
            cursor.execute(
                query.replace("?", self._driver.placeholder), _changed(values, texts.encode) if texts else values
            )
            return [_changed(row, texts.decode) if texts else tuple(row) for row in cursor.fetchall()]
        finally:
            cursor.close()

    def _reconnect(self) -> None:
        deadline = time.monotonic() + _RECONNECT_SECONDS
        _close(self._open, self._driver.errors)
        while True:
            try:
                self._connection = self._driver.connect()
            except self._driver.errors as error:
                if not self._driver.is_lost(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                self._open.append(self._connection)
                return


def _changed(values: Iterable[Any], change: Callable[[str], str]) -> tuple[Any, ...]:
    return tuple(change(each) if isinstance(each, str) else each for each in values)


@contextlib.contextmanager
def locked(database: Database) -> Iterator[None]:
    """Excludes the other processes that ask for the same; the server releases the lock of a killed process.

    A server that does not answer, or a lock that is held for longer than 10 s, is no error: the caller goes on.
    """
    used = driver(database)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(*used.errors):
            connection = used.connect()
            stack.callback(_close, [connection], used.errors)
            # Advisory locks of a MySQL server are common to its databases.
            connection.cursor().execute(used.lock, (zlib.crc32(database.name.encode()),))
        yield


def prefix_range(prefix: str) -> tuple[str, str]:
    """Returns the texts between which, in the order of their bytes, all texts with a prefix are."""
    # U+10FFFF is the greatest code point.
    return prefix, prefix + chr(0x10FFFF)


def _version_error(location: Location, version: int) -> MachineError:
    return MachineError(
        f"the metadata store {location}: expected schema version {SCHEMA_VERSION}, received {version}",
        "back it up, then upgrade it with `python runner.py metadata migrate`"
        if version < SCHEMA_VERSION
        else "read it with the release of ML Metadata that wrote it",
    )


def remedy(location: Location) -> str:
    """Returns the remedy for a store that cannot be opened or read."""
    if isinstance(location, Path):
        return "name the metadata.db of a pipeline, or move this file away (its runs are lost to the pipeline)"
    return (
        f"check that the server runs, has the database {location.name!r}, and accepts {location.user!r} "
        f"with the password in {location.password_env}"
    )


def _message(error: Exception) -> str:
    """Returns a driver's message on one line: pg8000 raises a dictionary, PyMySQL a number and a text."""
    message = error.args[0] if len(error.args) == 1 else error.args[-1] if error.args else error
    return " ".join(str(message["M"] if isinstance(message, dict) and "M" in message else message).split())


def _close(connections: list[Any], errors: tuple[type[Exception], ...]) -> None:
    while connections:
        # A connection that the server has closed raises.
        with contextlib.suppress(*errors):
            connections.pop().close()


def _parts(keys: Iterable[Any]) -> Iterator[list[Any]]:
    remaining = iter(keys)
    while part := list(islice(remaining, _KEYS_PER_QUERY)):
        yield part


@dataclass(frozen=True)
class Driver:
    """Access to one kind of database.

    Attributes:
      connect: opens a connection on which each query sees everything that was committed before it.
      errors: the exceptions that the driver raises.
      is_lost: whether an exception means that the connection or the server was lost.
      lacks_tables: whether an exception means that the tables do not exist.
      lock: statement that waits for an advisory lock, named by a number; closing the connection releases it.
      placeholder: of a value in a query.
      bytewise: format of a column that is compared byte by byte, independent of the database's collation.
      texts: the encoding of texts; None where the tables contain the texts as they are.
    """

    connect: Callable[[], Any]
    errors: tuple[type[Exception], ...]
    is_lost: Callable[[Exception], bool]
    lacks_tables: Callable[[Exception], bool]
    lock: str = ""
    placeholder: str = "%s"
    bytewise: str = "{}"
    texts: Texts | None = None


def driver(location: Location) -> Driver:
    """Returns the driver for a store's kind of database."""
    if isinstance(location, Path):
        return _sqlite(location)
    return {"postgresql": _postgresql, "mysql": _mysql}[location.backend](location)


def _sqlite(path: Path) -> Driver:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=_LOCKED_SECONDS,
            isolation_level=None,
            # The thread that drops the last reference closes the connection.
            check_same_thread=False,
        )

    def lacks_tables(error: Exception) -> bool:
        return "no such table" in str(error)

    return Driver(connect, (sqlite3.Error,), lambda _: False, lacks_tables, placeholder="?")


def _postgresql(database: Database) -> Driver:
    # Imported late: reading a file needs no server's driver.
    from pg8000 import dbapi

    def connect() -> Any:
        connection = dbapi.connect(
            user=database.user,
            host=database.host,
            port=database.port,
            database=database.name,
            password=database.password,
            # pg8000's default is TLS without a check of the certificate.
            ssl_context=False,
            timeout=_CONNECT_SECONDS,
        )
        connection.autocommit = True
        return connection

    def code(error: Exception) -> str:
        fields = error.args[0] if error.args else None
        return fields.get("C", "") if isinstance(fields, dict) else ""

    def is_lost(error: Exception) -> bool:
        return isinstance(error, (OSError, dbapi.InterfaceError)) or code(error) in _RESTARTING

    def lacks_tables(error: Exception) -> bool:
        return code(error) == _UNDEFINED_TABLE

    return Driver(
        connect,
        (dbapi.Error, OSError),
        is_lost,
        lacks_tables,
        lock="SELECT pg_advisory_lock(%s)",
        bytewise='{} COLLATE "C"',
        texts=POSTGRESQL,
    )


def _mysql(database: Database) -> Driver:
    import pymysql

    def connect() -> Any:
        return pymysql.connect(
            user=database.user,
            host=database.host,
            port=database.port,
            database=database.name,
            password=database.password,
            ssl_disabled=True,
            connect_timeout=_CONNECT_SECONDS,
            charset="utf8mb4",
            autocommit=True,
        )

    def code(error: Exception) -> int:
        return error.args[0] if error.args and isinstance(error.args[0], int) else 0

    def is_lost(error: Exception) -> bool:
        return isinstance(error, (OSError, pymysql.err.InterfaceError)) or code(error) in _LOST

    def lacks_tables(error: Exception) -> bool:
        return code(error) == _NO_SUCH_TABLE

    return Driver(
        connect,
        (pymysql.MySQLError, OSError),
        is_lost,
        lacks_tables,
        lock=f"SELECT GET_LOCK(%s, {_CONNECT_SECONDS})",
        bytewise="CAST({} AS BINARY)",
        texts=MYSQL,
    )


@dataclass(frozen=True)
class Texts:
    """The encoding of texts on a kind of server; see the module's description.

    Attributes:
      encode: from a text to what the server stores.
      decode: the reverse.
    """

    encode: Callable[[str], str]
    decode: Callable[[str], str]


_BACKSLASH = "\ue05c"
_UNDEFINED = {number: chr(number) for number in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
"""Bytes that Windows-1252 leaves undefined, and MySQL maps to the code points of the same numbers."""


def _decode_mysql(text: str) -> str:
    if text.isascii():
        return text
    try:
        return b"".join(
            bytes([ord(each)]) if ord(each) in _UNDEFINED else each.encode("cp1252") for each in text
        ).decode()
    except UnicodeError:
        # Another client wrote it, with the right encoding.
        return text


def _encode_mysql(text: str) -> str:
    if text.isascii():
        return text
    return "".join(_UNDEFINED.get(each) or bytes([each]).decode("cp1252") for each in text.encode())


POSTGRESQL = Texts(lambda text: text.replace("\\", _BACKSLASH), lambda text: text.replace(_BACKSLASH, "\\"))
MYSQL = Texts(_encode_mysql, _decode_mysql)
