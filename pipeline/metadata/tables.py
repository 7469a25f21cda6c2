"""ML Metadata's tables in SQLite, opened for reading alone, by nothing heavier than Python's own sqlite3.

ML Metadata's library asks one execution or artifact at a time for what it belongs to, each time over a whole table,
and opens a store by writing to it. Its tables are open and fixed: it has had schema version 10 since release 1.14.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from components.errors import MachineError

SCHEMA_VERSION = 10
_AT_ONCE = 500
"""Ids in one question; SQLite takes 999 at least."""
_LOCKED_SECONDS = 30.0
"""How long a reader waits while a run writes."""
_REMEDY = "name the metadata.db of a pipeline, or move this one away (its runs are forgotten then)"


class Tables:
    """A store's tables.

    Args:
      path: an SQLite file of ML Metadata; it is not made, and never changed.

    Raises:
      MachineError: it is not there, is no store, or has another schema.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=_LOCKED_SECONDS,
                isolation_level=None,
                # Whichever thread lets go of it last closes it.
                check_same_thread=False,
            )
            weakref.finalize(self, self._connection.close)
            found = self._connection.execute("SELECT schema_version FROM MLMDEnv").fetchall()
        except sqlite3.Error as error:
            raise MachineError(f"the metadata store {path} cannot be opened: {error}", _REMEDY) from error
        if found != [(SCHEMA_VERSION,)]:
            told = ", ".join(str(version) for (version,) in found) or "none"
            raise MachineError(
                f"the metadata store {path}: expected schema version {SCHEMA_VERSION}, found {told}",
                "read it with the release of ML Metadata that wrote it",
            )

    def rows(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """The answer to a SELECT.

        Raises:
          MachineError: the file is damaged, or stays locked.
        """
        try:
            return self._connection.execute(question, values).fetchall()
        except sqlite3.Error as error:
            raise MachineError(f"the metadata store {self._path} cannot be read: {error}", _REMEDY) from error

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


def _parts(keys: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(keys)
    while some := list(islice(left, _AT_ONCE)):
        yield some
