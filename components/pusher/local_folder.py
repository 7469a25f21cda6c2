"""A push folder on a local disk: adds versions atomically, and removes old ones.

A model server such as TensorFlow Serving watches the folder and loads each subfolder whose name is a number, the
greatest first. Therefore a version is copied to a hidden folder that no server loads, synced to the disk, and renamed.
Imports nothing heavy: the command line calls `check_writable` before a run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from components import model_signature, version_manifest
from components.errors import InputError
from components.files import exclusive_lock, is_remote
from components.pusher import rollout, serving_state
from components.pusher.serving_state import State
from components.pusher.store import Store, Update
from components.version_manifest import LocalFolder, Provenance, is_version

_UNFINISHED = ".push-"
_REMOVED = ".removed-"


def check_writable(directory: str) -> None:
    """Creates the folder and a file in it, and removes everything that it created.

    A remote folder is not checked: that takes credentials and imports that only the run itself has.

    Raises:
      InputError: the folder or a file in it cannot be created.
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
    """Copies a model into the folder as a new version, atomically.

    Args:
      model: the folder of a SavedModel.
      directory: the push folder; created if it does not exist.
      version: the number of the new version; the greatest existing number + 1 if that is greater.
      complete: adds files to the copy before it gets its final name; called with its temporary folder and its number.

    Returns:
      The folder of the new version, and its number.

    Raises:
      OSError: the copy failed, for example because the disk is full; no part of it remains.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder / ".push.lock"):
        # The process that created these held the lock, so it was killed.
        for leftover in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover)
        existing = [int(entry.name) for entry in folder.iterdir() if is_version(entry.name)]
        number = max([version, *(other + 1 for other in existing)])
        unfinished = folder / f"{_UNFINISHED}{number}"
        try:
            unfinished.mkdir()
            _copy(Path(model), unfinished)
            if complete is not None:
                complete(unfinished, number)
                _sync(unfinished)
            unfinished.rename(folder / str(number))
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        _sync(folder)
    return str(folder / str(number)), number


def open_folder(path: str) -> Store:
    """Opens a push folder on a local disk, whose changes wait for a lock."""
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
        # The next push removes them.
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
        # A model server that has loaded it continues with the copy in its memory.
        folder = Path(self._path)
        with contextlib.suppress(FileNotFoundError):
            (folder / str(number)).rename(folder / f"{_REMOVED}{number}")
        _sync(folder)
        for leftover in folder.glob(f"{_REMOVED}*"):
            # Another push may remove it at the same time.
            shutil.rmtree(leftover, ignore_errors=True)


def _copy(source: Path, destination: Path) -> None:
    """Copies the content of a folder and syncs it to the disk, so that a version survives a power failure."""
    for entry in sorted(source.iterdir()):
        copy = destination / entry.name
        if entry.is_dir():
            copy.mkdir()
            _copy(entry, copy)
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
