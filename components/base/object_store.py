"""Object stores at s3:// and az://, through fsspec: the file system of a URL, what it needs, and its errors.

gs:// is not here: TensorFlow, TFX, Beam and Google's client read it without fsspec. Credentials and endpoints come from
the places where the clients of the stores look for them; docs/how-to/object-stores.md lists them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
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
    "az": _Scheme(
        *("adlfs", "azure"),
        "AZURE_STORAGE_CONNECTION_STRING, or an account with a key, a SAS token or a login",
        {"anon": False},
    ),
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
      InputError: The package for the URL is not installed, or its settings or credentials cannot be used.
      MachineError: A service that gives credentials does not answer.
    """
    check_installed("object store", path)
    key = path.partition("://")[0], os.getpid()
    if key not in _file_systems:
        import fsspec

        options = {"use_listings_cache": False, "skip_instance_cache": True, **_SCHEMES[key[0]].options}
        with errors(path):
            created = fsspec.filesystem(key[0], **options)
            _obtain_credentials(created)
        _file_systems[key] = created
    return _file_systems[key]


def _obtain_credentials(file_system: Any) -> None:
    """Let a file system obtain its credentials.

    Otherwise, s3fs would list nothing if a file with a token did not exist, and Azure's client would try for minutes
    to log in.
    """
    from fsspec.asyn import sync

    async def obtain() -> None:
        if file_system.protocol[0] == "s3":
            await file_system.set_session()
            if credentials := await file_system.session.get_credentials():
                await credentials.get_frozen_credentials()
        elif hasattr(file_system.credential, "get_token"):
            await file_system.credential.get_token("https://storage.azure.com/.default")

    sync(file_system.loop, obtain)


def list_names(url: str) -> list[str]:
    """Return the names of the objects at and below a URL, relative to it: `""` for an object with the URL as its name.

    Some stores list a folder whose objects were deleted, such as SeaweedFS; it is not in the result.
    """
    root = url.partition("://")[2]
    found = file_system(url).find(root, detail=True)
    if isinstance(found, list):
        # adlfs returns a list if the URL names an object.
        return [path.removeprefix(root) for path in found]
    return [
        path.removeprefix(root)
        for path, details in found.items()
        if details["type"] == "file" and (path == root or path.startswith(f"{root}/"))
    ]


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


def find_status(error: BaseException) -> int | None:
    """Return the HTTP code of a client's error, or None. botocore's error may be the cause of an error of s3fs."""
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, dict):
            return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return getattr(error, "status_code", None)


def _is_missing(error: BaseException) -> bool:
    """Whether an error says that an object is missing; not if a local file is missing, such as one with a token."""
    if isinstance(error, FileNotFoundError):
        return not Path(error.filename or "").is_absolute()
    return find_status(error) == 404


def _convert(where: str, error: BaseException) -> Exception | None:
    """Return the error of this project for an error of a client; None for all other errors."""
    # Compare names and codes, because importing the classes would import the clients.
    names = {kind.__name__ for kind in type(error).__mro__}
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    scheme = _SCHEMES[where.partition("://")[0]]
    if names & {"NoCredentialsError", "PartialCredentialsError", "CredentialUnavailableError"} or (
        # adlfs without the name of an account, and azure-identity without a login.
        (isinstance(error, ValueError) and "account_name" in text) or text.startswith("DefaultAzureCredential failed")
    ):
        return InputError(f"{where}: expected credentials, found none", f"set {scheme.credentials}")
    status = find_status(error)
    if isinstance(error, PermissionError) or "ClientAuthenticationError" in names or status in (401, 403):
        return InputError(f"{where}: access is denied: {text}", f"check {scheme.credentials}, and its permissions")
    if _is_missing(error):
        return InputError(f"{where} does not exist: {text}", "create it, or correct the name")
    if (
        isinstance(error, (FileNotFoundError, ValueError))
        # botocore wraps the error of a missing file with certificates.
        or isinstance(getattr(error, "kwargs", {}).get("error"), FileNotFoundError)
        or ("BotoCoreError" in names and not names & _BOTO_FAILURES)
        # The service that gives credentials for a role refuses the request.
        or ("ClientError" in names and status == 400)
    ):
        return InputError(
            f"{where}: expected a URL and settings that the store's client accepts: {text}",
            f"correct the URL, {scheme.credentials}, or the client's other settings",
        )
    if isinstance(error, (OSError, TimeoutError)) or names & {"BotoCoreError", "AzureError", "ClientError"}:
        check = f"check {scheme.credentials}, or " if names & _CREDENTIAL_FAILURES else ""
        return MachineError(f"{where} cannot be reached: {text}", f"{check}repeat the command")
    return None


_CREDENTIAL_FAILURES = {"CredentialRetrievalError", "TokenRetrievalError"}
"""Base classes of botocore's errors about a service or a program that gives credentials."""
_BOTO_FAILURES = _CREDENTIAL_FAILURES | {
    "HTTPClientError",
    "ConnectionError",
    "IncompleteReadError",
    "ChecksumError",
    "FlexibleChecksumError",
    "MetadataRetrievalError",
}
"""Base classes of botocore's errors about the network or a service. Its other errors concern settings and arguments."""
