"""The push folder on a local disk: whether it can be written, and how a version gets into it whole.

A model server such as TensorFlow Serving watches the folder and loads each subfolder whose name is a number, the
greatest first. So a version is made under a hidden name that no server looks at, brought safely to the disk, and
renamed in one step. Imports nothing heavy: the command line asks `check_writable` before a run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from components.errors import InputError
from components.pusher import state
from components.version import is_version

_UNFINISHED = ".push-"
_REMOVED = ".removed-"


def is_remote(directory: str) -> bool:
    """Whether the folder is a URL, such as gs://bucket/models."""
    return "://" in directory


def check_writable(directory: str) -> None:
    """Makes the folder and a file in it, and takes away again what was not there before.

    Remote folders are not tried: that takes credentials and imports which only the run itself has.

    Raises:
      InputError: something stands in the way.
    """
    if is_remote(directory):
        return
    folder = Path(directory).absolute()
    made: list[Path] = []
    try:
        for place in reversed([folder, *folder.parents]):
            if place.is_file():
                raise NotADirectoryError(errno.ENOTDIR, "a file stands in its way", str(place))
            if not place.is_dir():
                place.mkdir()
                made.append(place)
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
        for place in reversed(made):
            with contextlib.suppress(OSError):
                place.rmdir()


def place(
    model: str, directory: str, version: int, complete: Callable[[Path, int], object] | None = None
) -> tuple[str, int]:
    """Copies a model into the folder as a new version, whole or not at all.

    Args:
      model: the folder of a SavedModel.
      directory: the push folder; made if it is not there.
      version: the version to give it; the next one after the greatest there, if that is not less.
      complete: called with the copy, still under a hidden name, and its number, to add what is not in the model.

    Returns:
      The folder of the new version, and its number.

    Raises:
      OSError: the copy failed (a full disk, say); nothing is left of it.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        # Whoever made these was killed: it held the lock.
        for leftover in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover)
        taken = [int(entry.name) for entry in folder.iterdir() if is_version(entry.name)]
        number = max([version, *(other + 1 for other in taken)])
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
    """Removes the oldest versions, each in one step: a reader sees all of it or nothing.

    A model server that has one of them loaded goes on with what is in its memory. Call it under the lock of the state.

    Args:
      directory: the push folder.
      keep: how many stay; more, where the oldest are the stable one, the canary or the one before the stable one.

    Returns:
      The versions that are gone.
    """
    folder = Path(directory)
    there = state.versions(folder)
    now = state.read(folder)
    needed = {*now.versions, now.previous(set(there))}
    excess = max(0, len(there) - keep)
    # The newest ones are never among them, whatever the oldest are needed for.
    gone = [version for version in there[:excess] if version not in needed]
    for version in gone:
        (folder / str(version)).rename(folder / f"{_REMOVED}{version}")
    _sync(folder)
    for leftover in folder.glob(f"{_REMOVED}*"):
        shutil.rmtree(leftover)
    return gone


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lets one process at a time push into the folder; the lock of a killed one is gone with it."""
    with (folder / ".push.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _copy(source: Path, target: Path) -> None:
    """Copies what is in a folder, and waits until the disk has it: a version must survive a power cut right after."""
    for entry in sorted(source.iterdir()):
        copy = target / entry.name
        if entry.is_dir():
            copy.mkdir()
            _copy(entry, copy)
        else:
            with entry.open("rb") as reader, copy.open("xb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                writer.flush()
                os.fsync(writer.fileno())
    _sync(target)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
