"""ML Metadata's tables, opened for reading alone, by nothing heavier than the database's own driver.

ML Metadata's library asks one execution or artifact at a time for what it belongs to, each time over a whole table,
and opens a store by writing to it. Its tables are open and fixed: they have had schema version 10 since release 1.14.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from components.errors import MachineError
from pipeline.metadata.database import Location
from pipeline.metadata.drivers import driver

SCHEMA_VERSION = 10
_AT_ONCE = 500
"""Keys in one question; SQLite takes 999 at least."""
_GONE_SECONDS = 30.0
"""How long a server that has gone may take to come back."""
_PAUSE_SECONDS = 0.2


class NoTablesError(MachineError):
    """There is a database, but no store in it."""


class UnreachableError(MachineError):
    """The server does not answer, now."""


class Tables:
    """A store's tables.

    A server that goes away and comes back is connected to again.

    Args:
      location: a file or a database of ML Metadata; it is not made, and never changed.
      oldest: the least schema version to accept.

    Attributes:
      version: of the schema.

    Raises:
      NoTablesError: it is no store; a file that is not there is a MachineError as any other.
      UnreachableError: the server does not answer.
      MachineError: it cannot be opened, or has another schema version.
    """

    def __init__(self, location: Location, oldest: int = SCHEMA_VERSION) -> None:
        self._location = location
        self._driver = driver(location)
        try:
            self._connection = self._driver.connect()
            # It may be connected anew: what is closed at the end is whatever is open then.
            self._open = [self._connection]
            weakref.finalize(self, _close, self._open, self._driver.errors)
            found = self._ask("SELECT schema_version FROM MLMDEnv", ())
        except self._driver.errors as error:
            told = f"the metadata store {location} cannot be opened: {_words(error)}"
            lost, empty = self._driver.is_lost(error), self._driver.lacks_tables(error)
            kind = UnreachableError if lost else NoTablesError if empty else MachineError
            raise kind(told, remedy(location)) from error
        # It is written just after its table is made, by whoever opens a store first.
        if not found:
            raise NoTablesError(f"the metadata store {location} is just being made", "try again")
        self.version = int(found[0][0])
        if not oldest <= self.version <= SCHEMA_VERSION:
            raise _of_version(location, self.version)

    def rows(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """The answer to a SELECT, in which `?` stands for each value.

        Raises:
          MachineError: the file is damaged or stays locked; the server does not come back.
        """
        try:
            try:
                return self._ask(question, values)
            except self._driver.errors as error:
                if not self._driver.is_lost(error):
                    raise
                self._connect_anew()
                return self._ask(question, values)
        except self._driver.errors as error:
            raise MachineError(
                f"the metadata store {self._location} cannot be read: {_words(error)}", remedy(self._location)
            ) from error

    def among(self, question: str, keys: Iterable[Any], *values: Any) -> list[tuple[Any, ...]]:
        """The answers to a SELECT in which `IN (…)` stands for some keys: a question for each few hundred of them.

        Args:
          question: its `…` becomes the keys' places; all other values have their places before it.
          keys: ids or names, each once.
          values: the others.
        """
        found: list[tuple[Any, ...]] = []
        for some in _parts(keys):
            found += self.rows(question.replace("…", ", ".join("?" * len(some))), *values, *some)
        return found

    def beginning(self, column: str) -> str:
        """A condition on what begins with a text; its values are `span` of that text."""
        exact = self._driver.bytewise.format(column)
        return f"{exact} >= ? AND {exact} < ?"

    def _ask(self, question: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        try:
            texts = self._driver.texts
            hidden = _changed(values, texts.hide) if texts else values
            cursor.execute(question.replace("?", self._driver.place), hidden)
            rows = cursor.fetchall()
            return [_changed(row, texts.reveal) if texts else tuple(row) for row in rows]
        finally:
            cursor.close()

    def _connect_anew(self) -> None:
        deadline = time.monotonic() + _GONE_SECONDS
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


def span(beginning: str) -> tuple[str, str]:
    """The values between which, in the order of their bytes, all texts lie that begin so."""
    # The greatest sign there is ends them.
    return beginning, beginning + chr(0x10FFFF)


def _of_version(location: Location, found: int) -> MachineError:
    return MachineError(
        f"the metadata store {location}: expected schema version {SCHEMA_VERSION}, found {found}",
        "back it up, then bring it up to date with `python runner.py metadata migrate`"
        if found < SCHEMA_VERSION
        else "read it with the release of ML Metadata that wrote it",
    )


def remedy(location: Location) -> str:
    """What helps where a store does not open."""
    if isinstance(location, Path):
        return "name the metadata.db of a pipeline, or move this one away (its runs are forgotten then)"
    return (
        f"see that the server runs, has the database {location.name!r}, and lets {location.user!r} in "
        f"with the password in {location.password_env}"
    )


def _words(error: Exception) -> str:
    """What a driver has to say, in a line: pg8000 tells a dictionary, PyMySQL a number and a text."""
    told = error.args[0] if len(error.args) == 1 else error.args[-1] if error.args else error
    return " ".join(str(told["M"] if isinstance(told, dict) and "M" in told else told).split())


def _close(connections: list[Any], errors: tuple[type[Exception], ...]) -> None:
    while connections:
        # One that the server has closed says so.
        with contextlib.suppress(*errors):
            connections.pop().close()


def _parts(keys: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(keys)
    while some := list(islice(left, _AT_ONCE)):
        yield some
