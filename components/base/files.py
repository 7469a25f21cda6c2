"""Files that several processes read and write: atomic replacement, exclusive locks, local and remote paths."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from components.base.errors import InputError


def is_remote(path: str) -> bool:
    """Whether the path is a URL, such as gs://bucket/file."""
    return "://" in path


def open_regular(path: str | Path, flags: int = 0) -> BinaryIO:
    """Open a local file for reading, without waiting for the writer of a FIFO.

    Args:
      path: Of the file.
      flags: Further flags of os.open, such as os.O_NOFOLLOW.

    Raises:
      OSError: The file does not exist or cannot be read.
      InputError: It is a folder, a FIFO or a device, which may have no end.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        check_regular(path, os.fstat(handle))
    except InputError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def check_regular(path: str | Path, status: os.stat_result) -> None:
    """Check that a path leads to a file with content of its own.

    Raises:
      InputError: It is a folder, a FIFO, a socket or a device.
    """
    if stat.S_ISREG(status.st_mode):
        return
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    received = next((kind for test, kind in kinds if test(status.st_mode)), "a device")
    raise InputError(f"{path}: expected a file, received {received}", "copy its content to a file, and name that")


def read_text(path: str | Path, max_bytes: int) -> str:
    """Read a local UTF-8 file that a person has written.

    Raises:
      OSError, InputError: As `open_regular`.
      InputError: It is larger than `max_bytes`, or not UTF-8.
    """
    with open_regular(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InputError(f"{path}: expected at most {max_bytes:,} bytes, received more", "name another file")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: expected text in UTF-8, received other bytes: {error}", "save it as UTF-8"
        ) from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole local file, so that a reader sees the old content or the new one, never a part.

    The content goes to a temporary file of the same folder, reaches the disk, and then replaces `path`. A write that
    fails leaves no temporary file.

    Args:
      path: The file; its folder is created if it does not exist.
      content: Text, written as UTF-8, or bytes.

    Raises:
      OSError: The folder or the file cannot be written.
    """
    with open_atomically(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def open_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends without an exception; see `write_atomically`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Unique, because two processes may write the same file at once; the dot keeps it out of listings.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def exclusive_lock(path: Path, *, wait: bool = True) -> contextlib.AbstractContextManager[None]:
    """Hold an exclusive lock on a file; the kernel releases it however the process ends.

    Args:
      path: The lock file; it is created if it does not exist, and stays.
      wait: Whether to wait for another process that holds the lock.

    Raises:
      BlockingIOError: Another process holds the lock, and `wait` is false.
    """
    return _locked(path, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def shared_lock(path: Path) -> contextlib.AbstractContextManager[None]:
    """Hold a lock on a file together with other processes, after waiting for one that holds it exclusively.

    Args:
      path: As in `exclusive_lock`.
    """
    return _locked(path, fcntl.LOCK_SH)


@contextlib.contextmanager
def _locked(path: Path, operation: int) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, operation)
        yield
    finally:
        os.close(handle)


def _umask() -> int:
    # The mask can only be read by setting it, which other threads would see; Linux also lists it.
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return next((int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:")), 0o022)
