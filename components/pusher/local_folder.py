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

from components.errors import InputError
from components.files import exclusive_lock, is_remote
from components.pusher import serving_state
from components.version_manifest import is_version

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


def prune(directory: str, keep: int) -> list[int]:
    """Removes the oldest versions, each by a rename, so that a reader sees the complete version or none.

    A model server that has loaded one of them continues with the copy in its memory. The caller holds
    `serving_state.lock`.

    Args:
      directory: the push folder.
      keep: how many versions remain. The stable version, the canary and the previous stable version always remain.

    Returns:
      The removed versions.
    """
    folder = Path(directory)
    existing = serving_state.versions(folder)
    now = serving_state.read(folder)
    protected = {*now.versions, now.previous(set(existing))}
    excess = max(0, len(existing) - keep)
    # Only the oldest ones are candidates: protected versions do not make newer ones go.
    removed = [version for version in existing[:excess] if version not in protected]
    for version in removed:
        (folder / str(version)).rename(folder / f"{_REMOVED}{version}")
    _sync(folder)
    for leftover in folder.glob(f"{_REMOVED}*"):
        shutil.rmtree(leftover)
    return removed


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
