"""The manifest of a pushed version, with a digest of every file and the provenance of the version.

A version is a folder whose name is a number. Its `manifest.json` is written last. This module must be fast to import,
because the command line and the model server verify versions before they do anything else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from pydantic import Field, FiniteFloat, ValidationError
from pydantic_core import from_json

from components.base.config_section import Section
from components.base.errors import InputError
from components.base.files import open_regular

NAME = "manifest.json"
MODEL_SIGNATURE = "model.sig"
"""Name of the file with the signature of a version, see components/results/model_signature.py."""

_SPAN = re.compile(r"^split:[^,\n]*/(\d+),", re.MULTILINE)
_REMEDY = "push the model again, or restore the version from a copy"


class Approval(Section):
    """Who approved the push of a model, when, and why."""

    by: str = Field(min_length=1, max_length=100)
    """Name of the approver as it was given. It is not authenticated."""
    at: str
    """Time of the approval, ISO 8601 in UTC."""
    note: str = Field(min_length=1, max_length=500)
    """Reason for the approval."""
    account: str
    """Account on the machine that the approval was given from."""


class Provenance(Section):
    """The provenance of a version: the fields of manifest.json that the push adds to the digests."""

    pipeline: str
    version: int = Field(ge=0)
    run: str
    """ID of the run that pushed the version."""
    created: str
    """Time of the push, ISO 8601 in UTC."""
    spans: tuple[int, ...] = ()
    """Spans of the training data."""
    metrics: dict[str, FiniteFloat] = Field(default_factory=dict)
    """Values on the whole eval split by metric name."""
    blessed_by: str
    """`thresholds`, `forced: ` and the reason, or `nobody` if the pipeline does not have an Evaluator."""
    config_digest: str
    """SHA-256 of the run's config."""
    tfx: str
    tensorflow: str
    approval: Approval | None = None
    """The approval of the push. None if `push.approval` did not require one."""


def spans(fingerprint: str, newest: int) -> tuple[int, ...]:
    """Return the spans that examples were read from, in ascending order.

    Args:
      fingerprint: Property `input_fingerprint` of the Examples artifact, which lists the files of all spans.
      newest: Property `span` of the artifact, which contains only the newest span. It is returned if the fingerprint
        does not list spans.
    """
    return tuple(sorted({int(span) for span in _SPAN.findall(fingerprint)})) or (newest,)


class File(Section):
    """The SHA-256 and the size in bytes of a file at the time of the push."""

    sha256: str
    bytes: int


class Manifest(Provenance):
    """The content of manifest.json."""

    format: Literal[1] = 1
    files: dict[str, File]
    """Digests by path within the version, for all files except the manifest and model.sig."""
    digest: str
    """SHA-256 of all other fields, which identifies the version."""


class Folder(Protocol):
    """A version's folder, on a disk or in an object store."""

    name: str
    """The last part of the folder's path."""

    def files(self) -> Iterable[str]:
        """Return the paths of all files in the folder and its subfolders, relative to the folder, with `/`."""

    def open(self, path: str) -> BinaryIO:
        """Open a file of the folder for reading.

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
        """Yield the paths of all files in the folder and its subfolders, relative to the folder.

        Raises:
          InputError: An entry is a link or a special file, which a digest cannot describe, or its name is not UTF-8.
        """
        yield from self._below("")

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading. Links are refused, because they could lead outside the folder."""
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
    """Return whether a model server would load a folder with this name as a version: it has only ASCII digits."""
    return name.isascii() and name.isdecimal()


def is_signed(folder: Folder) -> bool:
    """Return whether a version has a model.sig. The signature is not verified."""
    try:
        folder.open(MODEL_SIGNATURE).close()
    except FileNotFoundError:
        return False
    return True


def describe(folder: Folder) -> dict[str, File]:
    """Compute the digests of all files except the manifest, by path.

    Args:
      folder: Folder of the version.

    Raises:
      InputError: An entry is not a regular file, see `LocalFolder.files`.
    """
    return {path: _digest(folder, path) for path in sorted(folder.files()) if path != NAME}


def compute_digest(files: Mapping[str, File]) -> str:
    """Return the SHA-256 of the paths, contents and sizes of files, which identifies the content of a folder.

    Args:
      files: Digests of all files by path; see `describe`.
    """
    content = {path: file.model_dump() for path, file in sorted(files.items())}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def manifest(files: Mapping[str, File], provenance: Provenance) -> Manifest:
    """Return the manifest of a version.

    Args:
      files: Digests of all files except the manifest, by path within the version.
      provenance: Provenance of the version.
    """
    without_digest = Manifest(**provenance.model_dump(), files=dict(sorted(files.items())), digest="")
    fields = _dump(without_digest)
    del fields["digest"]
    content = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return without_digest.model_copy(update={"digest": hashlib.sha256(content).hexdigest()})


def to_json(manifest: Manifest) -> bytes:
    """Return the content of manifest.json. Equal manifests result in equal bytes."""
    fields = {"format": manifest.format, **_dump(manifest)}
    return json.dumps(fields, indent=2, allow_nan=False).encode() + b"\n"


def _dump(manifest: Manifest) -> dict[str, Any]:
    """Return the fields as JSON values, without `approval` if it is None.

    Manifests of earlier releases do not contain the field, and their bytes and digests must remain valid.
    """
    return manifest.model_dump(mode="json", exclude={"approval"} if manifest.approval is None else None)


def write(folder: str | Path, provenance: Provenance) -> Manifest:
    """Write the manifest of all files in a folder, and wait until it is on the disk.

    Args:
      folder: Folder of the complete version. It may still have a temporary name.
      provenance: Provenance of the version.

    Returns:
      The manifest.

    Raises:
      FileExistsError: The folder already has a manifest.
      InputError: An entry of the folder is not a regular file.
    """
    content = manifest(describe(LocalFolder(folder)), provenance)
    with (Path(folder) / NAME).open("xb") as file:
        file.write(to_json(content))
        file.flush()
        os.fsync(file.fileno())
    return content


def read(folder: str | Path | Folder) -> Manifest:
    """Read the manifest of a version and check its digest. The other files of the version are not read.

    Args:
      folder: Folder of the version.

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
    # Compare all bytes, so that even a change of white space is noticed.
    expected = manifest(stored.files, Provenance(**stored.model_dump(include=set(Provenance.model_fields))))
    if to_json(expected) != content:
        raise InputError(f"{where}/{NAME} was changed after it was written: its digest does not match", _REMEDY)
    return stored


def verify(folder: str | Path | Folder, any_name: bool = False) -> Manifest:
    """Check the number and every byte of a version against its manifest.

    Args:
      folder: Folder of the version.
      any_name: Whether to accept a copy whose folder name is not the number of the version.

    Returns:
      The manifest.

    Raises:
      InputError: The number does not match, or a file differs, is missing, or was added. The message names the first
        such file.
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

    Args:
      where: Folder of the version.
      expected: Digests of the files, by path within the version.

    Raises:
      InputError: A file differs, is missing, or was added. The message names the first such file.
    """
    # The signature covers the manifest, so the manifest cannot contain the digest of the signature.
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
