"""Files that several processes read and write: atomic replacement, exclusive locks, local and remote paths."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def is_remote(path: str) -> bool:
    """Whether the path is a URL, such as gs://bucket/file."""
    return "://" in path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a whole local file, so that a reader sees the old content or the new one, never a part.

    The content goes to a temporary file of the same folder, reaches the disk, and then replaces `path`. A write that
    fails leaves no temporary file.

    Args:
      path: the file; its folder is created if it does not exist.
      content: text, written as UTF-8, or bytes.

    Raises:
      OSError: the folder or the file cannot be written.
    """
    with open_atomically(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def open_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Opens a temporary file that replaces `path` when the block ends without an exception; see `write_atomically`."""
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


@contextlib.contextmanager
def exclusive_lock(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds an exclusive lock on a file; the kernel releases it however the process ends.

    Args:
      path: the lock file; it is created if it does not exist, and stays.
      wait: whether to wait for another process that holds the lock.

    Raises:
      BlockingIOError: another process holds the lock, and `wait` is false.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def _umask() -> int:
    # The mask can only be read by setting it, which other threads would see; Linux also lists it.
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return next((int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:")), 0o022)
