"""The manifest of a pushed version: a digest of every file, and the version's provenance.

A version is a folder whose name is a number; its `manifest.json` is written last. This module imports nothing heavy:
the command line and the model server verify versions before they do anything else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from pydantic import Field, FiniteFloat, ValidationError
from pydantic_core import from_json

from components.base.config_section import Section
from components.base.errors import InputError
from components.base.files import open_regular

NAME = "manifest.json"
MODEL_SIGNATURE = "model.sig"
"""A signature of the version and its manifest; see components/results/model_signature.py."""

_SPAN = re.compile(r"^split:[^,\n]*/(\d+),", re.MULTILINE)
_REMEDY = "push the model again, or restore the version from a copy"


class Provenance(Section):
    """Where a version comes from: the fields of manifest.json that the push adds to the digests."""

    pipeline: str
    version: int = Field(ge=0)
    run: str
    """The id of the run that pushed it."""
    created: str
    """The time of the push: ISO 8601, UTC."""
    spans: tuple[int, ...] = ()
    """The spans of its training data."""
    metrics: dict[str, FiniteFloat] = Field(default_factory=dict)
    """Metric → value on the whole eval split."""
    blessed_by: str
    """`thresholds`; or `forced: ` and the reason; or `nobody` in a pipeline without an Evaluator."""
    config_digest: str
    """SHA-256 of the run's config."""
    tfx: str
    tensorflow: str


def spans(fingerprint: str, newest: int) -> tuple[int, ...]:
    """Return the spans that examples were made from, in ascending order.

    Args:
      fingerprint: `input_fingerprint` of the Examples artifact.
      newest: Its `span`, which is the newest one only.
    """
    return tuple(sorted({int(span) for span in _SPAN.findall(fingerprint)})) or (newest,)


class File(Section):
    """The content of a file at the time of the push; `bytes` is its size."""

    sha256: str
    bytes: int


class Manifest(Provenance):
    """The content of manifest.json."""

    format: Literal[1] = 1
    files: dict[str, File]
    """Path within the version → content, for all files except the manifest and model.sig."""
    digest: str
    """SHA-256 of all fields above: identifies the version."""


class Folder(Protocol):
    """A version's folder, on a disk or in an object store."""

    name: str
    """The last part of its path."""

    def files(self) -> Iterable[str]:
        """Return the paths of all files below it, relative to it, with `/`."""

    def open(self, path: str) -> BinaryIO:
        """Open one of these files for reading.

        Raises:
          FileNotFoundError: The file does not exist.
        """

    def __str__(self) -> str: ...


class LocalFolder:
    """A version's folder on a disk."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self.name = self._path.name

    def __str__(self) -> str:
        return str(self._path)

    def files(self) -> Iterator[str]:
        """Yield the paths of all files, see Folder.

        Raises:
          InputError: An entry is a link or a special file, which has no content of its own, or its name is not UTF-8.
        """
        yield from self._below("")

    def open(self, path: str) -> BinaryIO:
        """Open a file; a link is refused, because it could point outside of the folder."""
        return open_regular(self._path / path, os.O_NOFOLLOW)

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
                    problem = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
                    problem = problem if _is_text(entry.name) else "its name is not UTF-8"
                    raise InputError(f"{self}: expected files and folders, received {path!r}: {problem}", _REMEDY)


def is_version(name: str) -> bool:
    """Whether a model server would load a folder of this name as a version: ASCII digits only."""
    return name.isascii() and name.isdecimal()


def is_signed(folder: Folder) -> bool:
    """Return whether a version has a model.sig, which is not verified."""
    try:
        folder.open(MODEL_SIGNATURE).close()
    except FileNotFoundError:
        return False
    return True


def describe(folder: Folder) -> dict[str, File]:
    """Compute the digest of every file except the manifest, by path.

    Raises:
      InputError: An entry is not a regular file, see LocalFolder.files.
    """
    return {path: _digest(folder, path) for path in sorted(folder.files()) if path != NAME}


def manifest(files: Mapping[str, File], provenance: Provenance) -> Manifest:
    """Return the manifest of a version.

    Args:
      files: Path within the version → content, without the manifest.
      provenance: Where the version comes from.
    """
    without_digest = Manifest(**provenance.model_dump(), files=dict(sorted(files.items())), digest="")
    fields = without_digest.model_dump(mode="json", exclude={"digest"})
    content = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return without_digest.model_copy(update={"digest": hashlib.sha256(content).hexdigest()})


def to_json(manifest: Manifest) -> bytes:
    """Return the content of manifest.json; equal manifests have equal bytes."""
    fields = {"format": manifest.format, **manifest.model_dump(mode="json")}
    return json.dumps(fields, indent=2, allow_nan=False).encode() + b"\n"


def write(folder: str | Path, provenance: Provenance) -> Manifest:
    """Write the manifest of all files in a folder, and wait until it is on the disk.

    Args:
      folder: The complete version; its name may still be a temporary one.
      provenance: Where the version comes from.

    Raises:
      FileExistsError: The folder has a manifest.
      InputError: An entry of the folder is not a regular file.
    """
    content = manifest(describe(LocalFolder(folder)), provenance)
    with (Path(folder) / NAME).open("xb") as file:
        file.write(to_json(content))
        file.flush()
        os.fsync(file.fileno())
    return content


def read(folder: str | Path | Folder) -> Manifest:
    """Read a version's manifest and check the manifest's own digest; the version's files are not read.

    Raises:
      InputError: The manifest does not exist, is not valid, or was changed after it was written.
    """
    where = _folder(folder)
    try:
        with where.open(NAME) as file:
            content = file.read()
    except FileNotFoundError as error:
        raise InputError(f"{where}: expected a {NAME}, found none", "push the model with this pipeline") from error
    except OSError as error:
        raise InputError(f"{where}/{NAME} cannot be read: {error.strerror}", _REMEDY) from error
    try:
        stored = Manifest.model_validate(from_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}/{NAME} is not a manifest: {field}: {first['msg']}", _REMEDY) from error
    except ValueError as error:
        raise InputError(f"{where}/{NAME} is not a manifest: {error}", _REMEDY) from error
    # All bytes are compared, so that not even white space can differ.
    expected = manifest(stored.files, Provenance(**stored.model_dump(include=set(Provenance.model_fields))))
    if to_json(expected) != content:
        raise InputError(f"{where}/{NAME} was changed after it was written: its digest does not match", _REMEDY)
    return stored


def verify(folder: str | Path | Folder, any_name: bool = False) -> Manifest:
    """Check a version against its manifest: number, and every byte of every file.

    Args:
      folder: The version.
      any_name: Accept a copy of the version, whose folder is not named by the number.

    Returns:
      The manifest.

    Raises:
      InputError: The number does not match; or a file differs, is missing, or was added. The message
        names the first such file.
    """
    where = _folder(folder)
    stored = read(where)
    if not any_name and where.name != str(stored.version):
        raise InputError(f"{where}: expected version {where.name}, received the manifest of {stored.version}", _REMEDY)
    try:
        check_files(where, stored.files)
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.filename}: {error.strerror}", _REMEDY) from error
    return stored


def _folder(folder: str | Path | Folder) -> Folder:
    return LocalFolder(folder) if isinstance(folder, (str, Path)) else folder


def check_files(where: Folder, expected: Mapping[str, File]) -> None:
    """Compare every byte of the files in a folder with their digests.

    Raises:
      InputError: A file differs, is missing, or was added; the message names the first one.
    """
    # The signature covers the manifest, so it is not in it.
    existing = set(where.files()) - {NAME, MODEL_SIGNATURE}
    for path in sorted(existing | expected.keys()):
        if path not in existing:
            raise InputError(f"{where}/{path} is missing", _REMEDY)
        if path not in expected:
            raise InputError(f"{where}/{path} is not in the manifest: it was added after the push", _REMEDY)
        if _digest(where, path) != expected[path]:
            raise InputError(f"{where}/{path} was changed after the push: its content differs", _REMEDY)


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
