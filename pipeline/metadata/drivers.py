"""How each kind of database is connected to and asked; nothing here is heavier than its driver."""

from __future__ import annotations

import sqlite3
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.errors import InputError
from pipeline.metadata.database import Database, Location, Tls
from pipeline.metadata.texts import MYSQL, POSTGRESQL, Texts

_CONNECT_SECONDS = 10
_LOCKED_SECONDS = 30.0
"""How long a reader waits while a run writes to a file."""
_RESTARTING = ("57P01", "57P02", "57P03")
"""PostgreSQL's codes for a server that goes down or comes up: admin_shutdown, crash_shutdown, cannot_connect_now."""
_GONE = (1053, 1077, 1152, 1927, 2002, 2003, 2006, 2013, 2055)
"""MySQL's and MariaDB's codes for a server that goes down, cannot be reached, or has gone while it was asked."""
_UNDEFINED_TABLE = "42P01"
_NO_SUCH_TABLE = 1146


@dataclass(frozen=True)
class Driver:
    """A kind of database.

    Attributes:
      connect: opens a connection on which each question sees all that was written before it.
      errors: what it raises.
      is_lost: whether an error says that the connection, or the server, has gone.
      lacks_tables: whether an error says that the tables asked for are not there.
      place: what stands for a value in a question.
      bytewise: a column, for `{}`, that is compared byte by byte whatever the database's own order is.
      texts: how they stand there, if not as ML Metadata's library was given them.
    """

    connect: Callable[[], Any]
    errors: tuple[type[Exception], ...]
    is_lost: Callable[[Exception], bool]
    lacks_tables: Callable[[Exception], bool]
    place: str = "%s"
    bytewise: str = "{}"
    texts: Texts | None = None


def driver(location: Location) -> Driver:
    """What a store is read with."""
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
            # Whichever thread lets go of it last closes it.
            check_same_thread=False,
        )

    def lacks_tables(error: Exception) -> bool:
        return "no such table" in str(error)

    return Driver(connect, (sqlite3.Error,), lambda _: False, lacks_tables, place="?")


def _postgresql(database: Database) -> Driver:
    # Imported late: who reads a file needs no server's driver.
    from pg8000 import dbapi

    def connect() -> Any:
        connection = dbapi.connect(
            user=database.user,
            host=database.host,
            port=database.port,
            database=database.name,
            password=database.password,
            # Neither tries its luck with a certificate that nobody has looked at.
            ssl_context=encryption(database.tls) if database.tls else False,
            timeout=_CONNECT_SECONDS,
        )
        connection.autocommit = True
        return connection

    def code(error: Exception) -> str:
        told = error.args[0] if error.args else None
        return told.get("C", "") if isinstance(told, dict) else ""

    def is_lost(error: Exception) -> bool:
        gone = isinstance(error, (OSError, dbapi.InterfaceError)) or code(error) in _RESTARTING
        return gone and not _is_unknown(error)

    def lacks_tables(error: Exception) -> bool:
        return code(error) == _UNDEFINED_TABLE

    exact = '{} COLLATE "C"'
    return Driver(connect, (dbapi.Error, OSError), is_lost, lacks_tables, bytewise=exact, texts=POSTGRESQL)


def _mysql(database: Database) -> Driver:
    import pymysql

    def connect() -> Any:
        return pymysql.connect(
            user=database.user,
            host=database.host,
            port=database.port,
            database=database.name,
            password=database.password,
            ssl=encryption(database.tls) if database.tls else None,
            ssl_disabled=database.tls is None,
            connect_timeout=_CONNECT_SECONDS,
            charset="utf8mb4",
            autocommit=True,
        )

    def code(error: Exception) -> int:
        return error.args[0] if error.args and isinstance(error.args[0], int) else 0

    def is_lost(error: Exception) -> bool:
        gone = isinstance(error, (OSError, pymysql.err.InterfaceError)) or code(error) in _GONE
        return gone and not _is_unknown(error)

    def lacks_tables(error: Exception) -> bool:
        return code(error) == _NO_SUCH_TABLE

    return Driver(
        connect, (pymysql.MySQLError, OSError), is_lost, lacks_tables, bytewise="CAST({} AS BINARY)", texts=MYSQL
    )


def _is_unknown(error: BaseException | None) -> bool:
    """Whether nobody vouches for the server's certificate: a driver may wrap that."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def encryption(tls: Tls) -> ssl.SSLContext:
    """How a connection is encrypted: the server's certificate has to be vouched for, and to name its host.

    Raises:
      InputError: a file is not there, or not what it should be.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        raise InputError(
            f"metadata.tls: the files cannot be read: {error}", "name files in PEM: ca, and certificate with key"
        ) from error
    return context
