"""A push folder on a local disk: add versions atomically, and remove old versions.

A model server such as TensorFlow Serving watches the folder and loads the subfolders whose names are numbers, the
greatest first. A version is therefore copied to a hidden folder that servers ignore, synced to the disk, and renamed.
This module does not import heavy packages, because the command line calls `check_writable` before a run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from components.base.errors import InputError
from components.base.files import exclusive_lock, is_remote
from components.base.object_store import is_object_store
from components.pusher import rollout, serving_state
from components.pusher.serving_state import State
from components.pusher.store import Store, Update
from components.results import model_signature, version_manifest
from components.results.version_manifest import Folder, LocalFolder, Provenance, is_version

_UNFINISHED = ".push-"
_REMOVED = ".removed-"


def check_writable(directory: str) -> None:
    """Check that a file can be created in the push folder, and remove everything that the check created.

    A remote folder is not checked, because only the run itself has the credentials and the imports for it.

    Raises:
      InputError: If the folder, or a file in it, cannot be created.
    """
    if is_remote(directory):
        return
    folder = Path(directory).absolute()
    created: list[Path] = []
    try:
        for path in reversed([folder, *folder.parents]):
            if path.is_file():
                raise NotADirectoryError(errno.ENOTDIR, "a file has this name", str(path))
            if not path.is_dir():
                path.mkdir()
                created.append(path)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        reason = error.strerror or str(error)
        where = f" ({error.filename})" if error.filename and str(error.filename) != str(folder) else ""
        raise InputError(
            f"cannot write to the push folder {directory}: {reason}{where}",
            "set push.directory to a folder that you may write to",
        ) from error
    finally:
        for path in reversed(created):
            with contextlib.suppress(OSError):
                path.rmdir()


def add_version(
    model: str, directory: str, version: int, complete: Callable[[Path, int], object] | None = None
) -> tuple[str, int]:
    """Copy a model into the push folder as a new version, atomically.

    Args:
      model: Folder of a SavedModel.
      directory: Push folder. It is created if it does not exist.
      version: Minimum number of the new version. If a greater number exists, the new number is the greatest number + 1.
      complete: Adds files to the copy before it is renamed. It is called with the temporary folder and the number.

    Returns:
      Folder of the new version, and its number.

    Raises:
      OSError: If the copy fails, for example because the disk is full. No part of it remains.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder / ".push.lock"):
        # A process that creates such a folder holds the lock, so the process that left these was killed.
        for leftover in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover)
        existing = [int(entry.name) for entry in folder.iterdir() if is_version(entry.name)]
        number = max([version, *(existing_number + 1 for existing_number in existing)])
        unfinished = folder / f"{_UNFINISHED}{number}"
        try:
            unfinished.mkdir()
            _copy_and_sync(Path(model), unfinished)
            if complete is not None:
                complete(unfinished, number)
                _sync(unfinished)
            unfinished.rename(folder / str(number))
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        _sync(folder)
    return str(folder / str(number)), number


def copy_version(source: Folder, directory: str) -> None:
    """Copy a version of another push folder, atomically, if the push folder does not have it yet.

    Args:
      source: Folder of the version, which is named after its number.
      directory: Push folder. It is created if it does not exist.

    Raises:
      InputError: The copy does not match its manifest.
      OSError: If the copy fails. No part of it remains.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder / ".push.lock"):
        if (folder / source.name).exists():
            return
        unfinished = folder / f"{_UNFINISHED}{source.name}"
        # A process that was killed may have left the folder.
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            copy_files(source, unfinished / source.name)
            version_manifest.verify(unfinished / source.name)
            (unfinished / source.name).rename(folder / source.name)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        _sync(folder)


def copy_files(source: Folder, target: Path) -> None:
    """Copy all files of a version to a new folder on the disk.

    Raises:
      InputError: A name leads outside the folder. Object stores allow such names.
    """
    for path in source.files():
        if path.startswith("/") or ".." in path.split("/"):
            raise InputError(f"{source}: expected files below it, received {path!r}", "remove this file")
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        with source.open(path) as reader, copy.open("xb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            writer.flush()
            os.fsync(writer.fileno())


@contextlib.contextmanager
def local_copy(folder: str) -> Iterator[str]:
    """Yield a path from which TensorFlow can read a folder, such as a SavedModel.

    Args:
      folder: Path or URL of the folder. If TensorFlow cannot open the URL, a temporary copy is yielded.
    """
    if not is_object_store(folder):
        yield folder
        return
    # Imported here because it imports TFX.
    from components.pusher.remote_folder import FileioFolder

    with tempfile.TemporaryDirectory(prefix="model-") as scratch:
        copy = Path(scratch, folder.rstrip("/").rpartition("/")[2])
        copy_files(FileioFolder(folder), copy)
        yield str(copy)


def open_folder(path: str) -> Store:
    """Open a push folder on a local disk. Changes of its state wait for a lock."""
    return _LocalStore(path)


class _LocalStore:
    has_stages = True

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> State:
        return serving_state.read(self._path)

    def change(self, update: Update) -> State:
        with serving_state.lock(self._path):
            new = update(self.read())
            serving_state.save(self._path, new)
            rollout.write(self._path, new)
        return new

    def versions(self) -> list[int]:
        return serving_state.versions(self._path)

    def leftovers(self) -> list[int]:
        # Incomplete versions are hidden folders, which the next push removes.
        return []

    def version(self, number: int) -> LocalFolder:
        return LocalFolder(f"{self._path.rstrip('/')}/{number}")

    def add(self, model: str, number: int, provenance: Provenance, private_key: Path | None = None) -> tuple[str, int]:
        def complete(folder: Path, number: int) -> None:
            version_manifest.write(folder, provenance.model_copy(update={"version": number}))
            if private_key is not None:
                model_signature.sign(folder, private_key)

        return add_version(model, self._path, number, complete)

    def remove(self, number: int) -> None:
        # A model server that has loaded the version continues to serve it from memory.
        folder = Path(self._path)
        with contextlib.suppress(FileNotFoundError):
            (folder / str(number)).rename(folder / f"{_REMOVED}{number}")
        _sync(folder)
        for leftover in folder.glob(f"{_REMOVED}*"):
            # Another push may remove the same folder at the same time.
            shutil.rmtree(leftover, ignore_errors=True)


def _copy_and_sync(source: Path, destination: Path) -> None:
    """Copy the content of a folder and sync it to the disk, so that a version survives a power failure."""
    for entry in sorted(source.iterdir()):
        copy = destination / entry.name
        if entry.is_dir():
            copy.mkdir()
            _copy_and_sync(entry, copy)
        else:
            with entry.open("rb") as reader, copy.open("xb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                writer.flush()
                os.fsync(writer.fileno())
    _sync(destination)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
