"""A push folder at any URL that TFX's fileio supports, such as hdfs://; `bucket_folder` is for gs://, s3:// and az://.

The file system may not support atomic renames, so saved_model.pb is written last. Model servers ignore a version until
this file exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from components.data import object_files
from components.pusher.serving_state import State
from components.pusher.store import Store, Update
from components.results import version_manifest
from components.results.version_manifest import File, Provenance

_MODEL = "saved_model.pb"
_BLOCK = 1 << 20


class FileioFolder:
    """A version's folder, read through TFX's fileio. It implements `version_manifest.Folder`."""

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")
        self.name = self._uri.rpartition("/")[2]

    def __str__(self) -> str:
        return self._uri

    def files(self) -> Iterator[str]:
        """Yield the relative paths of all files."""
        for folder, _, names in _fileio().walk(self._uri):
            inside = folder.rstrip("/").removeprefix(self._uri).strip("/")
            yield from (f"{inside}/{name}" if inside else name for name in names)

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading.

        Raises:
          FileNotFoundError: If the file does not exist.
        """
        uri = f"{self._uri}/{path}"
        if not _fileio().exists(uri):
            raise FileNotFoundError(uri)
        return cast(BinaryIO, _fileio().open(uri, "rb"))


def open_folder(url: str) -> Store:
    """Open a push folder by its URL.

    The folder does not support stages, because TFX's fileio cannot replace a file on condition that it is unchanged.
    """
    return _FileioStore(url)


class _FileioStore:
    has_stages = False

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def read(self) -> State:
        return State()

    def change(self, update: Update) -> State:
        return update(State())

    def versions(self) -> list[int]:
        return [number for number in versions(self._url) if self._is_complete(number)]

    def leftovers(self) -> list[int]:
        return [number for number in versions(self._url) if not self._is_complete(number)]

    def version(self, number: int) -> FileioFolder:
        return FileioFolder(f"{self._url}/{number}")

    def add(self, model: str, number: int, provenance: Provenance, private_key: Path | None = None) -> tuple[str, int]:
        return add_version(model, self._url, number, provenance)

    def remove(self, number: int) -> None:
        # Remove saved_model.pb first: model servers do not load a version without it.
        if self._is_complete(number):
            _fileio().remove(f"{self._url}/{number}/{_MODEL}")
        _fileio().rmtree(f"{self._url}/{number}")

    def _is_complete(self, number: int) -> bool:
        return bool(_fileio().exists(f"{self._url}/{number}/{_MODEL}"))


def add_version(model: str, directory: str, version: int, provenance: Provenance) -> tuple[str, int]:
    """Copy a model into the push folder as a new version with a manifest; saved_model.pb is written last.

    Args:
      model: Folder of a SavedModel.
      directory: URL of the push folder.
      version: Minimum number of the new version. If a greater number exists, the new number is the greatest number + 1.
      provenance: Content of the manifest.

    Returns:
      URL of the new version, and its number.
    """
    directory = directory.rstrip("/")
    number = max([version, *(existing_number + 1 for existing_number in versions(directory))])
    uri = f"{directory}/{number}"
    source = FileioFolder(model)
    paths = sorted(source.files(), key=lambda path: (path == _MODEL, path))
    files = {path: _copy(f"{model}/{path}", f"{uri}/{path}") for path in paths if path != _MODEL}
    with _fileio().open(f"{model}/{_MODEL}", "rb") as file:
        content = file.read()
    files[_MODEL] = File(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
    manifest = version_manifest.manifest(files, provenance.model_copy(update={"version": number}))
    _write(f"{uri}/{version_manifest.NAME}", version_manifest.to_json(manifest))
    _write(f"{uri}/{_MODEL}", content)
    return uri, number


def versions(directory: str) -> list[int]:
    """Return the numbers of all versions in a push folder, in ascending order, including incomplete versions."""
    if not _fileio().exists(directory):
        return []
    names = (name.strip("/") for name in _fileio().listdir(directory))
    return sorted(int(name) for name in names if version_manifest.is_version(name))


def _fileio() -> Any:
    # Imported here because it imports TFX. A command that only reads `has_stages` does not need it.
    from tfx.dsl.io import fileio

    object_files.register()
    return fileio


def _copy(source: str, target: str) -> File:
    digest, size = hashlib.sha256(), 0
    _fileio().makedirs(target.rpartition("/")[0])
    with _fileio().open(source, "rb") as reader, _fileio().open(target, "wb") as writer:
        while block := reader.read(_BLOCK):
            digest.update(block)
            size += len(block)
            writer.write(block)
    return File(sha256=digest.hexdigest(), bytes=size)


def _write(uri: str, content: bytes) -> None:
    _fileio().makedirs(uri.rpartition("/")[0])
    with _fileio().open(uri, "wb") as file:
        file.write(content)
