"""Read-only SQL access to ML Metadata's tables in SQLite, PostgreSQL and MySQL, with only the database's driver.

ML Metadata's library is not used here for two reasons. It reads the relations of executions and artifacts one by one,
each time with a scan of the full table, and it writes to a store when it opens it. The tables are documented and
stable: their schema version has been 10 since release 1.14.

On a database server, the stored texts differ from the texts that were passed to the library. `Texts` encodes and
decodes them:

- PostgreSQL: The library (seen with release 1.16) escapes a text with libpq, removes the first and the last character,
  and adds quotes. If the text contains a backslash, libpq's result begins with ` E'` instead of a quote, so that the
  statement is not valid SQL. TFX's parameters contain many backslashes, because they are JSON inside JSON. Therefore
  a character of Unicode's private use area is stored in place of a backslash.
- MySQL: The library sends UTF-8, but the server interprets it as Latin-1 (in MySQL, Windows-1252). The library reads
  texts back as it wrote them; every other client reads `Ã¼` for `ü`.
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

from components.base.errors import MachineError
from pipeline.core.metadata.location import Database, Location

SCHEMA_VERSION = 10
_KEYS_PER_QUERY = 500
"""Maximum number of keys in an `IN (…)` condition; SQLite accepts at least 999 parameters."""
_RECONNECT_SECONDS = 30.0
"""Time in seconds to retry connecting to a server after the connection was lost."""
_PAUSE_SECONDS = 0.2
_CONNECT_SECONDS = 10
_LOCKED_SECONDS = 30.0
"""Time in seconds that a reader waits for the lock of a file while a run writes to it."""
_RESTARTING = ("57P01", "57P02", "57P03")
"""PostgreSQL's error codes of a server that stops or starts: admin_shutdown, crash_shutdown, cannot_connect_now."""
_LOST = (1053, 1077, 1152, 1927, 2002, 2003, 2006, 2013, 2055)
"""MySQL's and MariaDB's error codes of a server that stops, cannot be reached, or was lost during a query."""
_UNDEFINED_TABLE = "42P01"
_NO_SUCH_TABLE = 1146


class NoTablesError(MachineError):
    """The database exists, but it does not contain the tables of a metadata store."""


class UnreachableError(MachineError):
    """The server does not answer at the moment."""


class Tables:
    """The tables of a store, opened for reading. If the connection to a server is lost, it is opened again.

    Args:
      location: Location of the store, which is neither created nor changed.
      oldest: Lowest schema version to accept.

    Attributes:
      version: Schema version of the store.

    Raises:
      NoTablesError: The database exists, but does not contain the tables of a store. A missing file raises a plain
        MachineError.
      UnreachableError: The server does not answer.
      MachineError: The store cannot be opened, or has another schema version.
    """

    def __init__(self, location: Location, oldest: int = SCHEMA_VERSION) -> None:
        self._location = location
        self._driver = select_driver(location)
        try:
            self._connection = self._driver.connect()
            # Pass the finalizer a list, because `_reconnect` may replace the connection before the finalizer closes it.
            self._open_connections = [self._connection]
            weakref.finalize(self, _close_all, self._open_connections, self._driver.errors)
            versions = self._query("SELECT schema_version FROM MLMDEnv", ())
        except self._driver.errors as error:
            message = f"the metadata store {location} cannot be opened: {_format_error(error)}"
            is_lost, is_empty = self._driver.is_lost(error), self._driver.lacks_tables(error)
            kind = UnreachableError if is_lost else NoTablesError if is_empty else MachineError
            raise kind(message, choose_remedy(location)) from error
        # A process that creates a store creates this table first and then inserts the version.
        if not versions:
            raise NoTablesError(f"the metadata store {location} is being created", "try again")
        self.version = int(versions[0][0])
        if not oldest <= self.version <= SCHEMA_VERSION:
            raise _make_version_error(location, self.version)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a SELECT statement.

        Args:
          query: The statement, with a `?` per value.
          values: Values of type int, float or str.

        Returns:
          The rows as tuples.

        Raises:
          MachineError: The file is damaged or stays locked, or the connection to the server is lost for too long.
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
                f"the metadata store {self._location} cannot be read: {_format_error(error)}",
                choose_remedy(self._location),
            ) from error

    def rows_in(self, query: str, keys: Iterable[Any], *values: Any) -> list[tuple[Any, ...]]:
        """Run a SELECT statement with a condition `IN (…)` on many keys, in batches of 500 keys.

        Args:
          query: The statement, with a `?` per value and then one `…` for the keys.
          keys: IDs or names, without duplicates.
          values: Values of type int, float or str.

        Returns:
          The rows as tuples. Only rows of the same batch are in the order that the statement defines.
        """
        rows: list[tuple[Any, ...]] = []
        for batch in _split_into_batches(keys):
            rows += self.rows(query.replace("…", ", ".join("?" * len(batch))), *values, *batch)
        return rows

    def prefix_condition(self, column: str) -> str:
        """Return an SQL condition that a column begins with a prefix; its two values are `prefix_range(prefix)`."""
        bytewise = self._driver.bytewise.format(column)
        return f"{bytewise} >= ? AND {bytewise} < ?"

    def _query(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        try:
            texts = self._driver.texts
            cursor.execute(
                query.replace("?", self._driver.placeholder), _change_texts(values, texts.encode) if texts else values
            )
            return [_change_texts(row, texts.decode) if texts else tuple(row) for row in cursor.fetchall()]
        finally:
            cursor.close()

    def _reconnect(self) -> None:
        deadline = time.monotonic() + _RECONNECT_SECONDS
        _close_all(self._open_connections, self._driver.errors)
        while True:
            try:
                self._connection = self._driver.connect()
            except self._driver.errors as error:
                if not self._driver.is_lost(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                self._open_connections.append(self._connection)
                return


def _change_texts(values: Iterable[Any], change: Callable[[str], str]) -> tuple[Any, ...]:
    return tuple(change(value) if isinstance(value, str) else value for value in values)


@contextlib.contextmanager
def hold_advisory_lock(database: Database, purpose: str = "") -> Iterator[None]:
    """Hold an advisory lock of a database within the block. If the process is killed, the server releases the lock.

    If the server does not answer, or another process holds the lock for longer than 10 s, the block runs without the
    lock.

    Args:
      database: The database.
      purpose: Locks with different purposes do not exclude each other.
    """
    database_driver = select_driver(database)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(*database_driver.errors):
            connection = database_driver.connect()
            stack.callback(_close_all, [connection], database_driver.errors)
            # Derive the lock's number from the database's name, because all databases of a MySQL server share locks.
            connection.cursor().execute(database_driver.lock, (zlib.crc32(f"{database.name}{purpose}".encode()),))
        yield


def prefix_range(prefix: str) -> tuple[str, str]:
    """Return the bounds (inclusive, exclusive) of all texts that begin with a prefix, in bytewise order."""
    # U+10FFFF is the greatest code point.
    return prefix, prefix + chr(0x10FFFF)


def _make_version_error(location: Location, version: int) -> MachineError:
    return MachineError(
        f"the metadata store {location}: expected schema version {SCHEMA_VERSION}, received {version}",
        "back it up, then upgrade it with `python runner.py store migrate`"
        if version < SCHEMA_VERSION
        else "read it with the release of ML Metadata that wrote it",
    )


def choose_remedy(location: Location) -> str:
    """Return the remedy for a store that cannot be opened or read."""
    if isinstance(location, Path):
        return "name the metadata.db of a pipeline, or move this file away (its runs are lost to the pipeline)"
    return (
        f"check that the server runs, has the database {location.name!r}, and accepts {location.user!r} "
        f"with the password in {location.password_env}"
    )


def _format_error(error: Exception) -> str:
    """Return the message of a driver's error on one line.

    The argument of an error is a dictionary in pg8000; in PyMySQL, the arguments are a number and a text.
    """
    message = error.args[0] if len(error.args) == 1 else error.args[-1] if error.args else error
    return " ".join(str(message["M"] if isinstance(message, dict) and "M" in message else message).split())


def _close_all(connections: list[Any], errors: tuple[type[Exception], ...]) -> None:
    while connections:
        # Closing a connection that the server has closed already raises an error.
        with contextlib.suppress(*errors):
            connections.pop().close()


def _split_into_batches(keys: Iterable[Any]) -> Iterator[list[Any]]:
    remaining = iter(keys)
    while batch := list(islice(remaining, _KEYS_PER_QUERY)):
        yield batch


@dataclass(frozen=True)
class Driver:
    """Access to one kind of database.

    Attributes:
      connect: Opens a connection on which each query sees everything that was committed before it.
      errors: Exceptions that the driver raises.
      is_lost: Returns whether an exception means that the connection or the server was lost.
      lacks_tables: Returns whether an exception means that the tables do not exist.
      lock: Statement that waits for the advisory lock with a number. Closing the connection releases the lock. Empty if
        the database does not have advisory locks.
      placeholder: Placeholder of a value in a statement.
      bytewise: Format of an expression that compares a column byte by byte, whatever the collation of the database.
      texts: Encoding of texts. If None, the tables contain the texts unchanged.
    """

    connect: Callable[[], Any]
    errors: tuple[type[Exception], ...]
    is_lost: Callable[[Exception], bool]
    lacks_tables: Callable[[Exception], bool]
    lock: str = ""
    placeholder: str = "%s"
    bytewise: str = "{}"
    texts: Texts | None = None


def select_driver(location: Location) -> Driver:
    """Return the driver for a store's kind of database."""
    if isinstance(location, Path):
        return _make_sqlite_driver(location)
    return {"postgresql": _make_postgresql_driver, "mysql": _make_mysql_driver}[location.backend](location)


def _make_sqlite_driver(path: Path) -> Driver:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=_LOCKED_SECONDS,
            isolation_level=None,
            # The finalizer closes the connection in whichever thread drops the last reference.
            check_same_thread=False,
        )

    def lacks_tables(error: Exception) -> bool:
        return "no such table" in str(error)

    return Driver(connect, (sqlite3.Error,), lambda _: False, lacks_tables, placeholder="?")


def _make_postgresql_driver(database: Database) -> Driver:
    # Imported late, because an SQLite file can be read without the drivers of servers.
    from pg8000 import dbapi

    def connect() -> Any:
        connection = dbapi.connect(
            user=database.user,
            host=database.host,
            port=database.port,
            database=database.name,
            password=database.password,
            # By default, pg8000 would use TLS without verifying the certificate.
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


def _make_mysql_driver(database: Database) -> Driver:
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
    """The encoding of texts on a kind of server; see the description of the module.

    Attributes:
      encode: Converts a text to the text that the server stores.
      decode: Converts a stored text to the original text.
    """

    encode: Callable[[str], str]
    decode: Callable[[str], str]


_BACKSLASH = "\ue05c"
_UNDEFINED = {number: chr(number) for number in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
"""Bytes that Windows-1252 does not define; MySQL maps them to the code points of the same numbers."""


def _decode_mysql(text: str) -> str:
    if text.isascii():
        return text
    try:
        return b"".join(
            bytes([ord(char)]) if ord(char) in _UNDEFINED else char.encode("cp1252") for char in text
        ).decode()
    except UnicodeError:
        # Another client wrote the text in the right encoding.
        return text


def _encode_mysql(text: str) -> str:
    if text.isascii():
        return text
    return "".join(_UNDEFINED.get(byte) or bytes([byte]).decode("cp1252") for byte in text.encode())


POSTGRESQL = Texts(lambda text: text.replace("\\", _BACKSLASH), lambda text: text.replace(_BACKSLASH, "\\"))
MYSQL = Texts(_encode_mysql, _decode_mysql)
