"""The location of a metadata store: an SQLite file, or a database on a server, without its password."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, unquote, urlsplit

from components.base.errors import InputError

PORTS = {"postgresql": 5432, "mysql": 3306}
"""Backend → default port of its servers."""
PASSWORD = "METADATA_PASSWORD"  # noqa: S105 - the name of an environment variable  # pragma: allowlist secret
"""Default of `metadata.password_env`, the name of the environment variable that contains the password."""


@dataclass(frozen=True)
class Database:
    """A database on a server.

    Attributes:
      backend: `postgresql` or `mysql`.
      host: Host name or address of the server.
      port: Port of the server.
      name: Name of the database.
      user: Name of the database user.
      password_env: Name of the environment variable that contains the password.
    """

    backend: str
    host: str
    port: int
    name: str
    user: str
    password_env: str = PASSWORD

    @property
    def password(self) -> str:
        """The password; empty if the variable is not set, which suits servers that do not require a password."""
        return os.environ.get(self.password_env, "")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.backend}://{quote(self.user, safe='')}@{host}:{self.port}/{quote(self.name, safe='')}"


Location: TypeAlias = "Path | Database"
"""An SQLite file, or a database on a server."""


def location(text: str) -> Location:
    """Parse the location of a store.

    Args:
      text: Path of a file; or `postgresql://USER@HOST[:PORT]/DATABASE` or `mysql://USER@HOST[:PORT]/DATABASE`, without
        a password.

    Raises:
      InputError: The URL has another scheme, is incomplete, or contains a password.
    """
    backend, separator, _ = text.partition("://")
    if not separator:
        return Path(text)
    remedy = f"write postgresql://USER@HOST[:PORT]/DATABASE or mysql://…, and set {PASSWORD} to the password"
    if backend not in PORTS:
        raise InputError(f"--store: expected a file or a database's URL, received a URL with {backend}://", remedy)
    try:
        parts = urlsplit(text)
        port = parts.port or PORTS[backend]
    except ValueError as error:
        raise InputError(
            f"--store: expected a database's URL, received one that cannot be parsed: {error}", remedy
        ) from error
    if parts.password is not None:
        raise InputError("--store: expected a URL without a password, received one with a password", remedy)
    name = unquote(parts.path.removeprefix("/"))
    if not parts.username or not parts.hostname or not name:
        missing = [
            part
            for part, value in (("user", parts.username), ("host", parts.hostname), ("database", name))
            if not value
        ]
        raise InputError(
            f"--store: expected user, host and database in the URL, received one without {' and '.join(missing)}",
            remedy,
        )
    return Database(backend, parts.hostname, port, name, unquote(parts.username))


def exists(location: Location) -> bool:
    """Return whether the file of the store exists. For a server, return True without connecting to it."""
    return not isinstance(location, Path) or location.exists()
