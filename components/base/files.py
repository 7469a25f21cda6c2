"""Functions for files that several processes read and write: atomic replacement, locks, local and remote paths."""

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
    """Return whether a path is a URL, such as gs://bucket/file."""
    return "://" in path


def open_regular(path: str | Path, flags: int = 0) -> BinaryIO:
    """Open a regular local file for reading. If the path is a FIFO, the call does not wait for its writer.

    Args:
      path: Path of the file.
      flags: Further flags for os.open, such as os.O_NOFOLLOW.

    Raises:
      OSError: The file does not exist or cannot be read.
      InputError: The path is a folder, or a FIFO or device, which could be read without end.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        check_regular(path, os.fstat(handle))
    except InputError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def check_regular(path: str | Path, status: os.stat_result) -> None:
    """Check that a path leads to a regular file.

    Args:
      path: Path of the file, for the error message.
      status: Status of the file, from os.stat or os.fstat.

    Raises:
      InputError: The path is a folder, a FIFO, a socket or a device.
    """
    if stat.S_ISREG(status.st_mode):
        return
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    received = next((kind for test, kind in kinds if test(status.st_mode)), "a device")
    raise InputError(f"{path}: expected a file, received {received}", "copy its content to a file, and name that")


def read_text(path: str | Path, max_bytes: int) -> str:
    """Read a local text file in UTF-8 that a person has written.

    Args:
      path: Path of the file.
      max_bytes: Maximum size of the file.

    Raises:
      OSError: The file does not exist or cannot be read.
      InputError: The file is not a regular file, is larger than `max_bytes`, or is not encoded in UTF-8.
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
    """Write a local file so that readers see either the old content or the new content, never a part of it.

    The content is written to a temporary file in the same folder and flushed to the disk. The temporary file then
    replaces `path`. If writing fails, the temporary file is deleted.

    Args:
      path: Path of the file. Its folder is created if it does not exist.
      content: Content of the file. Text is encoded as UTF-8.

    Raises:
      OSError: The folder or the file cannot be written.
    """
    with open_atomically(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def open_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` if the block ends without an exception. See `write_atomically`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is unique, because two processes may write the same file at once. The dot hides it from listings.
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
    """Hold an exclusive lock on a file. If the process ends for any reason, the kernel releases the lock.

    Args:
      path: Path of the lock file. It is created if it does not exist, and is not deleted.
      wait: Whether to wait until another process has released the lock.

    Raises:
      BlockingIOError: Another process holds the lock, and `wait` is False.
    """
    return _hold_lock(path, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def shared_lock(path: Path) -> contextlib.AbstractContextManager[None]:
    """Hold a lock on a file that several processes can share. It waits until no process holds an exclusive lock.

    Args:
      path: Path of the lock file. It is created if it does not exist, and is not deleted.
    """
    return _hold_lock(path, fcntl.LOCK_SH)


@contextlib.contextmanager
def _hold_lock(path: Path, operation: int) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, operation)
        yield
    finally:
        os.close(handle)


def _umask() -> int:
    # os.umask can read the mask only by changing it, which affects other threads. Read it from /proc instead.
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return next((int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:")), 0o022)
