"""Object stores at s3:// and az://, through fsspec: the file system of a URL, what it needs, and its errors.

gs:// is not here: TensorFlow, TFX, Beam and Google's client read it without fsspec. Credentials and endpoints come from
the places where the clients of the stores look for them; docs/how-to/object-stores.md lists them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from components.base.errors import InputError, MachineError

BLOCK = 16 << 20
"""Bytes per request when a file is read or written in parts."""


class _Scheme(NamedTuple):
    """What a scheme needs.

    Attributes:
      package: Package with the file system for fsspec.
      extra: Extra of this project that installs the package.
      credentials: Where credentials are expected, for error messages.
      options: Options of the file system.
    """

    package: str
    extra: str
    credentials: str
    options: Mapping[str, Any]


_SCHEMES = {
    "s3": _Scheme("s3fs", "s3", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role", {}),
    # Without `anon`, adlfs tries to read a public container if it does not find a key.
    "az": _Scheme("adlfs", "azure", "AZURE_STORAGE_CONNECTION_STRING, or an account and a key", {"anon": False}),
}
SCHEMES = tuple(_SCHEMES)
_file_systems: dict[tuple[str, int], Any] = {}
"""(Scheme, process) → file system. The file system of a parent process cannot be used after a fork. fsspec's own cache
is not used, because it makes a file system, and so a client, for each thread."""


def is_object_store(path: str) -> bool:
    """Return whether a path is a URL that this module opens."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme in _SCHEMES


def check_installed(field: str, path: str) -> None:
    """Check that the package for a path is installed.

    Args:
      field: Field of the config that contains the path, for the error message.
      path: A local path or a URL. Only URLs that this module opens are checked.

    Raises:
      InputError: The package is not installed.
    """
    if not is_object_store(path):
        return
    scheme = _SCHEMES[path.partition("://")[0]]
    if importlib.util.find_spec(scheme.package) is None:
        raise InputError(
            f"{field}: expected the package {scheme.package} to open {path}, found none",
            f"install the extra: `.venv/bin/python -m pip install -r requirements-{scheme.extra}.txt`",
        )


def file_system(path: str) -> Any:
    """Return fsspec's file system for a URL. It does not keep listings, because other processes change them.

    Raises:
      InputError: The package for the URL is not installed.
    """
    check_installed("object store", path)
    key = path.partition("://")[0], os.getpid()
    if key not in _file_systems:
        import fsspec

        options = {"use_listings_cache": False, "skip_instance_cache": True, **_SCHEMES[key[0]].options}
        _file_systems[key] = fsspec.filesystem(key[0], **options)
    return _file_systems[key]


@contextlib.contextmanager
def errors(where: str, *, is_optional: bool = False) -> Iterator[None]:
    """Convert the errors of the stores' clients to errors of this project.

    Args:
      where: URL that is read or written.
      is_optional: Whether the caller expects that the object may be missing.

    Raises:
      FileNotFoundError: The object does not exist, and `is_optional` is True.
      InputError: Credentials are missing or not sufficient, or the object or its bucket does not exist.
      MachineError: The store failed or did not answer, after the repetitions of its client.
    """
    try:
        yield
    except (InputError, MachineError):
        raise
    except Exception as error:
        if is_optional and _is_missing(error):
            raise FileNotFoundError(where) from error
        # When the upload of a block fails, adlfs raises a RuntimeError from the error of Azure's client.
        cause = error.__cause__ if type(error) is RuntimeError else None
        converted = _convert(where, cause or error)
        if converted is None:
            raise
        raise converted from error


def _is_missing(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) or getattr(error, "status_code", None) == 404


def _convert(where: str, error: BaseException) -> Exception | None:
    """Return the error of this project for an error of a client; None for all other errors."""
    # Compare names and codes, because importing the classes would import the clients.
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    scheme = _SCHEMES[where.partition("://")[0]]
    if names & {"NoCredentialsError", "PartialCredentialsError", "CredentialUnavailableError"} or (
        isinstance(error, ValueError) and "account_name" in text
    ):
        return InputError(f"{where}: expected credentials, found none", f"set {scheme.credentials}")
    if isinstance(error, PermissionError) or "ClientAuthenticationError" in names or _has_status(error, 401, 403):
        return InputError(f"{where}: access is denied: {text}", f"check {scheme.credentials}, and its permissions")
    if _is_missing(error):
        return InputError(f"{where} does not exist: {text}", "create it, or correct the name")
    if isinstance(error, (OSError, TimeoutError)) or names & {"BotoCoreError", "AzureError", "ClientError"}:
        return MachineError(f"{where} cannot be reached: {text}", "repeat the command")
    return None


def _has_status(error: BaseException, *codes: int) -> bool:
    return getattr(error, "status_code", None) in codes
