"""Where a metadata store is: an SQLite file, or a database on a server; told without its password."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, unquote, urlsplit

from components.errors import InputError

PORTS = {"postgresql": 5432, "mysql": 3306}
"""Backend → the port that its servers listen on, unless told otherwise."""
PASSWORD = "METADATA_PASSWORD"  # noqa: S105 - the name of an environment variable  # pragma: allowlist secret
"""Where the password stands, unless a config says otherwise."""


@dataclass(frozen=True)
class Tls:
    """Files, in PEM; relative ones start at the working directory.

    Attributes:
      ca: the certificates of who may vouch for the server.
      certificate: the client's own, with its key.
      key: of that.
    """

    ca: str
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Database:
    """A database on a server.

    Attributes:
      backend: `postgresql` or `mysql`.
      host: name or address of the server.
      port: of the server.
      name: of the database.
      user: who connects.
      password_env: the environment variable with the password.
      tls: how the connection is encrypted; None: not at all.
    """

    backend: str
    host: str
    port: int
    name: str
    user: str
    password_env: str = PASSWORD
    tls: Tls | None = None

    @property
    def password(self) -> str:
        """The password, empty if the environment has none; servers that ask for none take that."""
        return os.environ.get(self.password_env, "")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.backend}://{quote(self.user, safe='')}@{host}:{self.port}/{quote(self.name, safe='')}"


Location: TypeAlias = "Path | Database"
"""A file of SQLite, or a database on a server."""


def location(text: str) -> Location:
    """What a text names: a file, or `postgresql://user@host:port/database` (`mysql://` alike), without a password.

    Raises:
      InputError: it is such a URL, but not a whole one, or has a password in it.
    """
    backend, separator, _ = text.partition("://")
    if not separator:
        return Path(text)
    remedy = f"write postgresql://USER@HOST[:PORT]/DATABASE or mysql://…, and the password into {PASSWORD}"
    if backend not in PORTS:
        raise InputError(f"--store: expected a file or a database's URL, received one that begins {backend}://", remedy)
    try:
        parts = urlsplit(text)
        port = parts.port or PORTS[backend]
    except ValueError as error:
        raise InputError(
            f"--store: expected a database's URL, received one that cannot be read: {error}", remedy
        ) from error
    if parts.password is not None:
        raise InputError("--store: expected a URL without a password, received one with it", remedy)
    name = unquote(parts.path.removeprefix("/"))
    if not parts.username or not parts.hostname or not name:
        raise InputError("--store: expected user, host and database in the URL, received less", remedy)
    return Database(backend, parts.hostname, port, name, unquote(parts.username))


def exists(place: Location) -> bool:
    """Whether there may be a store: what a server has, only asking it tells."""
    return not isinstance(place, Path) or place.exists()
