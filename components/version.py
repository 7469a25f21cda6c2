"""A pushed version's manifest: a digest of every file, where the version comes from, and, with a key, a signature.

A version is a folder named by its number; its `manifest.json` is the last file to be written into it. Imports nothing
heavy: the command line and the model server verify versions before they do anything else.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from pydantic import Field, FiniteFloat, ValidationError

from components.errors import InputError
from components.section import Section

NAME = "manifest.json"
KEY_ENVIRONMENT = "TFX_PIPELINE_SIGNING_KEY"
"""The environment variable with the key, unless the config names another."""

_SPAN = re.compile(r"^split:[^,\n]*/(\d+),", re.MULTILINE)
_ANEW = "push the model anew, or put back the version as it was pushed"


class Facts(Section):
    """Where a version comes from."""

    pipeline: str
    version: int = Field(ge=0)
    run: str
    """The id of the run that pushed it."""
    created: str
    """When it was pushed: ISO 8601, in UTC."""
    spans: tuple[int, ...] = ()
    """The spans of the data it was made from."""
    metrics: dict[str, FiniteFloat] = Field(default_factory=dict)
    """As measured on the whole eval split."""
    blessed_by: str
    """`thresholds`, or `forced: ` and the reason, or `nobody` where there is no gate."""
    config_digest: str
    """SHA-256 of the run's whole config."""
    tfx: str
    tensorflow: str


def spans(fingerprint: str, newest: int) -> tuple[int, ...]:
    """The spans that examples were made from, in order.

    Args:
      fingerprint: `input_fingerprint` of the Examples artifact.
      newest: its `span`, which tells the newest only.
    """
    return tuple(sorted({int(span) for span in _SPAN.findall(fingerprint)})) or (newest,)


class File(Section):
    """What a file held when the version was pushed."""

    sha256: str
    bytes: int


class Signature(Section):
    """Says that somebody who knew the key wrote the manifest."""

    algorithm: Literal["hmac-sha256"] = "hmac-sha256"
    value: str


class Manifest(Facts):
    """What stands in manifest.json."""

    format: Literal[1] = 1
    files: dict[str, File]
    """Path within the version → content; all files but the manifest itself."""
    digest: str
    """SHA-256 of all of the above: the name of just this version."""
    signature: Signature | None = None


class Folder(Protocol):
    """A version where it lies: on a disk, or in an object store."""

    name: str
    """The last part of its path."""

    def files(self) -> Iterable[str]:
        """Paths of all files below it, relative, with `/`."""

    def open(self, path: str) -> BinaryIO:
        """Opens one of them for reading.

        Raises:
          FileNotFoundError: there is none.
        """

    def __str__(self) -> str: ...


class LocalFolder:
    """A version on a disk."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self.name = self._path.name

    def __str__(self) -> str:
        return str(self._path)

    def files(self) -> Iterator[str]:
        """Paths of all files.

        Raises:
          InputError: a link, a pipe or the like, or a name that is no UTF-8: nobody could say what is in it.
        """
        yield from self._below("")

    def open(self, path: str) -> BinaryIO:
        """Opens a file; never one outside, by a link."""
        return os.fdopen(os.open(self._path / path, os.O_RDONLY | os.O_NOFOLLOW), "rb")

    def _below(self, inside: str) -> Iterator[str]:
        with os.scandir(self._path / inside) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = f"{inside}{entry.name}"
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    yield from self._below(f"{path}/")
                elif stat.S_ISREG(mode) and _is_text(entry.name):
                    yield path
                else:
                    told = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
                    told = told if _is_text(entry.name) else "its name is no UTF-8"
                    raise InputError(f"{self}: expected files and folders, received {path!r}: {told}", _ANEW)


def is_version(name: str) -> bool:
    """Whether a folder of this name is a version, as a model server sees it."""
    return name.isascii() and name.isdecimal()


def signing_key(environment: Mapping[str, str], name: str = KEY_ENVIRONMENT) -> bytes | None:
    """The key that manifests are signed with, or nothing.

    Args:
      environment: such as os.environ.
      name: the variable.

    Raises:
      InputError: the variable is set and empty: a secret that did not arrive must not mean that none is wanted.
    """
    value = environment.get(name)
    if value == "":
        raise InputError(f"{name} is set, and empty: expected the signing key", f"give the key, or unset {name}")
    return None if value is None else value.encode()


def describe(folder: Folder) -> dict[str, File]:
    """The digest of every file but the manifest, by path.

    Raises:
      InputError: something in it is no file, see LocalFolder.files.
    """
    return {path: _digest(folder, path) for path in sorted(folder.files()) if path != NAME}


def manifest(files: Mapping[str, File], facts: Facts, key: bytes | None) -> Manifest:
    """The manifest of a version with these files; signed if there is a key."""
    plain = Manifest(**facts.model_dump(), files=dict(sorted(files.items())), digest="")
    told = _signed_part(plain)
    signature = None if key is None else Signature(value=_sign(told, key))
    return plain.model_copy(update={"digest": hashlib.sha256(told).hexdigest(), "signature": signature})


def rendered(manifest: Manifest) -> bytes:
    """The content of manifest.json: the only one that this manifest has."""
    told = {"format": manifest.format, **manifest.model_dump(mode="json")}
    return json.dumps(told, indent=2, allow_nan=False).encode() + b"\n"


def write(folder: str | Path, facts: Facts, key: bytes | None = None) -> Manifest:
    """Writes the manifest of all that lies in a folder, and waits until the disk has it.

    Args:
      folder: the finished version; it may still have another name.
      facts: where the version comes from.
      key: signs the manifest.
    """
    made = manifest(describe(LocalFolder(folder)), facts, key)
    with (Path(folder) / NAME).open("xb") as file:
        file.write(rendered(made))
        file.flush()
        os.fsync(file.fileno())
    return made


def read(folder: str | Path | Folder) -> Manifest:
    """Reads a version's manifest, and holds it against itself only.

    Raises:
      InputError: there is none, or it is no manifest, or not as it was written.
    """
    where = _folder(folder)
    try:
        with where.open(NAME) as file:
            content = file.read()
    except FileNotFoundError as error:
        raise InputError(f"{where}: expected a {NAME}, found none", "push the model with this pipeline") from error
    except OSError as error:
        raise InputError(f"{where}/{NAME} cannot be read: {error.strerror}", _ANEW) from error
    try:
        found = Manifest.model_validate(json.loads(content))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}/{NAME} is no manifest: {field}: {first['msg']}", _ANEW) from error
    except ValueError as error:
        raise InputError(f"{where}/{NAME} is no manifest: {error}", _ANEW) from error
    # Compared as a whole, so that not even a space can differ.
    expected = manifest(found.files, Facts(**found.model_dump(include=set(Facts.model_fields))), None)
    if rendered(expected.model_copy(update={"signature": found.signature})) != content:
        raise InputError(f"{where}/{NAME} is not as it was written: its digest does not fit", _ANEW)
    return found


def verify(folder: str | Path | Folder, key: bytes | None = None) -> Manifest:
    """Holds a version against its manifest: number, signature, and every byte of every file.

    Args:
      folder: the version.
      key: if given, the manifest has to be signed with it; without one, a signature is not looked at.

    Raises:
      InputError: naming the first file that differs, is missing, or is too many; or the signature.
    """
    where = _folder(folder)
    found = read(where)
    if key is not None:
        _check_signature(where, found, key)
    if where.name != str(found.version):
        raise InputError(f"{where}: expected version {where.name}, received the manifest of {found.version}", _ANEW)
    try:
        _check_files(where, found.files)
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.filename}: {error.strerror}", _ANEW) from error
    return found


def _folder(folder: str | Path | Folder) -> Folder:
    return LocalFolder(folder) if isinstance(folder, (str, Path)) else folder


def _check_files(where: Folder, expected: Mapping[str, File]) -> None:
    there = set(where.files()) - {NAME}
    for path in sorted(there | expected.keys()):
        if path not in there:
            raise InputError(f"{where}/{path} is missing", _ANEW)
        if path not in expected:
            raise InputError(f"{where}/{path} is not in the manifest: it was added after the push", _ANEW)
        if _digest(where, path) != expected[path]:
            raise InputError(f"{where}/{path} is not what was pushed: its content differs", _ANEW)


def _check_signature(where: Folder, found: Manifest, key: bytes) -> None:
    remedy = "push the model with the key set, or verify with the key it was signed with"
    if found.signature is None:
        raise InputError(f"{where}/{NAME}: expected a signature, found none", remedy)
    if not hmac.compare_digest(found.signature.value.encode(), _sign(_signed_part(found), key).encode()):
        raise InputError(f"{where}/{NAME}: the signature does not fit the key", remedy)


def _signed_part(manifest: Manifest) -> bytes:
    plain = manifest.model_dump(mode="json", exclude={"digest", "signature"})
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _sign(content: bytes, key: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _digest(folder: Folder, path: str) -> File:
    digest, size = hashlib.sha256(), 0
    with folder.open(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return File(sha256=digest.hexdigest(), bytes=size)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
